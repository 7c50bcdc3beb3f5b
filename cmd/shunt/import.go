package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/shuntmq/shunt"
)

func importCommand(a *app) *cobra.Command {
	m := arrival{keep: span(7 * 24 * time.Hour)}
	in := &cobra.Command{
		Use: "import", Short: "Enqueue the messages of an export",
		Long: `Enqueue the messages of an export, from --file or standard input, in their order.

What an import restores: channel, payload, ID, type, headers and due time. What it cannot restore: the serial and
the time of the enqueue, which are new; attempts, recoveries and failures, which begin anew; and the expiry,
deadline, retention and bounds of attempts and time that the message was enqueued with, which an export does not
have. A suspect waits as any other message. --mark writes what is lost of the first ones into headers.

Dead messages cannot be put back into dead. They are left out, and counted, unless --dead enqueue has them handled
again.

An import that is interrupted tells the name of its run, and goes on by --resume NAME from the same input. It
doubles nothing.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.arrive(cmd.Context(), &m) },
	}
	f := in.Flags()
	f.StringVarP(&m.file, "file", "f", "", "the file to read (default standard input)")
	f.StringVar(&m.channel, "channel", "", "the channel to enqueue to (default that of each message)")
	f.StringVar(&m.dead, "dead", "skip", "what becomes of dead messages: skip or enqueue")
	f.BoolVar(&m.mark, "mark", false, "add headers shunt-import-… with what is not restored")
	f.StringVar(&m.run, "resume", "", "the `name` of the run: what it has imported before is not imported again")
	f.Var(&m.keep, "keep", "how long Redis remembers what a run has imported")
	return in
}

// arrival is what import was given.
type arrival struct {
	file, channel, dead, run string
	mark                     bool
	keep                     span
}

func (a *app) arrive(ctx context.Context, m *arrival) error {
	switch {
	case m.dead != "skip" && m.dead != "enqueue":
		return usage("--dead %q: want skip or enqueue", m.dead)
	case len(m.run) > 200:
		return usage("--resume has %d bytes: want up to 200", len(m.run))
	}
	a.maxSize = 512 << 20 // what was in Redis was not too large for somebody
	if _, err := a.open(); err != nil {
		return err
	}
	if m.file != "" {
		f, err := os.Open(m.file)
		if err != nil {
			return err
		}
		defer f.Close()
		a.in = f
	}
	s := &shipment{a: a, run: cmp.Or(m.run, newRun()), keep: time.Duration(m.keep), p: a.progress("import")}
	bounded, cancel := context.WithCancel(ctx)
	defer cancel()
	skipped, ended := 0, false // of the stream's goroutine, until it has closed its channel
	from := stream(bounded, a.counted(s.p), '\n', func(at int, line []byte) (parcel, error) {
		r, err := parseRecord(line)
		ended = r.End != nil
		if err != nil || r.Channel == "" {
			return parcel{}, err
		}
		if r.State == shunt.StateDead && m.dead == "skip" {
			skipped++
			return parcel{}, nil
		}
		return parcel{at: at, channel: cmp.Or(m.channel, r.Channel), id: string(r.ID), payload: *r.Payload,
			opts: r.options(m.mark)}, nil
	})
	err := s.ship(ctx, from)
	if err == nil {
		if skipped > 0 {
			a.say("dead messages left out: %d; --dead enqueue has them handled again", skipped)
		}
		if !ended {
			err = errors.New("the export has no last line: it was interrupted, and more messages were there")
		}
	}
	again := "shunt import --resume " + s.run
	if m.file != "" {
		again += " --file " + m.file
	}
	return s.finish(ctx, "import", m.channel, again, err)
}
