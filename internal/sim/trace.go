package sim

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/shuntmq/shunt/internal/trial"
)

// heard writes what the server hears into the plot's trace, until it is closed: the time of the run, the session, the
// command and the reply.
func (p *Plot) heard() (hear func(session string, args []string, reply any), closes func()) {
	if p.Trace == "" {
		return nil, func() {}
	}
	f, err := os.Create(p.Trace)
	if err != nil {
		panic(err)
	}
	hear = func(session string, args []string, reply any) {
		line := fmt.Appendf(nil, "%11.6f %4s", time.Since(epoch).Seconds(), session)
		for _, a := range args {
			line = append(append(line, ' '), brief(a)...)
		}
		_, _ = fmt.Fprintf(f, "%s -> %s\n", line, brief(fmt.Sprint(reply)))
	}
	return hear, func() { _ = f.Close() }
}

// words writes what processes said behind the commands.
func (p *Plot) words(es []trial.Entry) {
	if p.Trace == "" {
		return
	}
	var text []byte
	for _, e := range es {
		text = fmt.Appendf(text, "%11.6f said %s %s %s %q %s %d %d %s\n", e.At.Sub(epoch).Seconds(), e.By, e.Op,
			e.Phase, e.ID, e.Serial, e.Attempt, e.N, brief(e.Note))
	}
	if err := os.WriteFile(p.Trace+".said", text, 0o644); err != nil {
		panic(err)
	}
}

// brief is text of which only the beginning matters.
func brief(text string) string {
	const most = 120
	quoted := fmt.Sprintf("%q", text[:min(len(text), most)])
	if len(text) > most {
		quoted += fmt.Sprintf("+%d", len(text)-most)
	}
	if !strings.ContainsAny(text, " \"\\") && len(quoted) == len(text)+2 {
		return text
	}
	return quoted
}
