package sim

import (
	"math/rand/v2"
	"strings"

	"github.com/shuntmq/shunt/recur"
)

// crons is the stream of a seed from which expressions are drawn.
const crons = 300

// words are what users write into expressions, where it belongs and elsewhere.
var words = []string{"*", "*", "*", "*", "0", "1", "5", "59", "60", "-1", "*/5", "*/0", "1-5", "5-1", "L", "?", "MON",
	"sun", "JAN", "@every", "@daily", "1h", "TZ=UTC", "TZ=", "CRON_TZ=UTC", "CRON_TZ=", "Europe/Berlin", "#1", ""}

// crons draws expressions as users give them.
func (p *Plot) crons(r *rand.Rand) {
	for range 20 {
		e := make([]string, 3+r.IntN(5))
		for i := range e {
			for e[i] = pick(r, words); r.IntN(6) == 0; {
				e[i] += pick(r, []string{",", "-", "/", " "}) + pick(r, words)
			}
		}
		p.Crons = append(p.Crons, strings.Join(e, " "))
	}
}

// spells has each expression read, and judged: none may make a process panic.
func (w *world) spells() {
	for _, e := range w.plot.Crons {
		func() {
			defer func() {
				if p := recover(); p != nil {
					w.problem("I26 panic: cron %q: %v", e, p)
				}
			}()
			_ = recur.Cron(e, "").Err()
		}()
	}
}
