// Package top is a live screen of channels and their messages, for a terminal.
package top

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"os/user"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/shuntmq/shunt"
)

// Options say how the screen behaves. Its zero fields are the defaults.
type Options struct {
	Refresh time.Duration // between two looks at Redis: default 1 s, 100 ms at least
	By      string        // who acts, for the audit: default the user's name at this host
	// NoColor leaves colours out, as the variable NO_COLOR does. Bold and reverse stay.
	NoColor bool
}

func (o Options) withDefaults() Options {
	o.Refresh = max(100*time.Millisecond, cmp.Or(o.Refresh, time.Second))
	if o.By == "" {
		o.By = "somebody"
		if u, err := user.Current(); err == nil && u.Username != "" {
			o.By = u.Username
		}
		if host, err := os.Hostname(); err == nil {
			o.By += "@" + host
		}
	}
	o.NoColor = o.NoColor || os.Getenv("NO_COLOR") != ""
	return o
}

// Run shows the screen until the user leaves it, or ctx ends. in and out are a terminal. Channels are looked at by one
// Overview each second; while the screen is paused nothing is asked. Where Redis is away the screen says so, and goes
// on when it is back. What the user changes is noted by Queue.Audit. Signals are the caller's: let them end ctx.
func Run(ctx context.Context, q *shunt.Queue, in io.Reader, out io.Writer, o Options) error {
	m := newModel(ctx, q, o.withDefaults())
	p := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(in),
		tea.WithOutput(out), tea.WithoutSignalHandler(), tea.WithWindowSize(80, 24)) // until the terminal says its own
	_, err := p.Run()
	m.acts.leave()
	if ctx.Err() != nil && errors.Is(err, tea.ErrProgramKilled) {
		return nil
	}
	return err
}
