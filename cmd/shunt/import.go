package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/shuntmq/shunt"
)

func importCommand(a *app) *cobra.Command {
	m := arrival{keep: span(7 * 24 * time.Hour)}
	in := &cobra.Command{
		Use: "import", Short: "Enqueue the messages of an export",
		Long: `Enqueue the messages of an export, from --file or standard input, in their order.

What an import restores: channel, payload, ID, type, headers, due time, attempts, recoveries, the last failure, and
the expiry, deadline, retention and bounds that the message was enqueued with. What it does not restore: the serial
and the time of the enqueue, which are new. A suspect waits as any other message. --mark writes the old serial, state
and time into headers.

Dead messages go back into dead as they were, unless --dead enqueue has them handled again, as retry does, or --dead
skip leaves them out. What is handled again has no attempts behind it, and neither expiry nor deadline.

A payload that is encrypted for its serial (by AES of package codec, without AnySerial) could not be decoded with a new
one, nor one that is encrypted or kept in a store for another channel. An import stops there, unless --force is given.

An import that is interrupted tells the name of its run, and goes on by --resume NAME from the same input. It
doubles nothing. But no run remembers the dead messages that it has put back: those that were retried or deleted since
then are put back again. Let them be until the import has ended, or use --dead skip when it goes on behind them.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.arrive(cmd.Context(), &m) },
	}
	f := in.Flags()
	f.StringVarP(&m.file, "file", "f", "", "the file to read (default standard input)")
	f.StringVar(&m.channel, "channel", "", "the channel to enqueue to (default that of each message)")
	f.StringVar(&m.dead, "dead", "restore", "what becomes of dead messages: restore, enqueue or skip")
	f.BoolVar(&m.mark, "mark", false, "add headers shunt-import-… with what is not restored")
	f.BoolVar(&m.force, "force", false, "also import what is encoded for another channel or serial")
	f.StringVar(&m.run, "resume", "", "the `name` of the run: what it has imported before is not imported again")
	f.Var(&m.keep, "keep", "how long Redis remembers what a run has imported")
	return in
}

// arrival is what import was given.
type arrival struct {
	file, channel, dead, run string
	mark, force              bool
	keep                     span
}

func (a *app) arrive(ctx context.Context, m *arrival) error {
	switch {
	case m.dead != "restore" && m.dead != "skip" && m.dead != "enqueue":
		return usage("--dead %q: want restore, enqueue or skip", m.dead)
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
	d, seen := &burial{a: a}, make(map[string]struct{})
	from := stream(bounded, a.counted(s.p), '\n', func(at int, line []byte) (parcel, error) {
		r, err := parseRecord(line)
		ended = r.End != nil
		if err != nil || r.Channel == "" {
			return parcel{}, err
		}
		if _, twice := seen[r.Serial]; twice && r.Serial != "" { // it moved before an export went on
			return parcel{}, nil
		}
		if len(seen) < maxSeen {
			seen[r.Serial] = struct{}{}
		}
		channel, back := cmp.Or(m.channel, r.Channel), r.State == shunt.StateDead && m.dead == "restore"
		if r.State == shunt.StateDead && m.dead == "skip" {
			skipped++
			return parcel{}, nil
		}
		if err := r.unreadable(channel, !back); err != nil && !m.force {
			return parcel{}, err
		}
		if back {
			e, err := r.entry(channel)
			if err != nil {
				return parcel{}, err
			}
			return parcel{}, d.add(bounded, e)
		}
		msg, err := r.message(channel, m.mark)
		return parcel{at: at, channel: channel, id: string(r.ID), payload: *r.Payload, message: msg}, err
	})
	err := s.ship(ctx, from)
	if err == nil {
		err = d.flush(ctx)
	}
	cancel()
	s.Restored = d.restored()
	if err == nil {
		if skipped > 0 {
			a.say("dead messages left out: %d", skipped)
		}
		if !ended {
			err = errors.New("the export has no last line: it was interrupted, and more messages were there")
		}
	}
	return s.finish(ctx, "import", m.channel, m.again(a, s.run), err)
}

// again is the command that goes on with a run. It has all flags that say where its messages go, and how.
func (m *arrival) again(a *app, run string) string {
	again := "shunt import --resume " + quoted(run) + a.where()
	for _, f := range [][2]string{{"file", m.file}, {"channel", m.channel}} {
		if f[1] != "" {
			again += " --" + f[0] + " " + quoted(f[1])
		}
	}
	if m.dead != "restore" {
		again += " --dead " + m.dead
	}
	if m.mark {
		again += " --mark"
	}
	if m.force {
		again += " --force"
	}
	return again
}

// burial puts dead letters back, some at a time. What is there already stays as it is: so nothing has to be noted.
type burial struct {
	a *app

	mu   sync.Mutex
	held []shunt.Entry
	size int
	n    int // that were put back
}

// restored is how many were put back. It waits for those that are under way.
func (d *burial) restored() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.n
}

func (d *burial) add(ctx context.Context, e shunt.Entry) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.held) > 0 && (d.held[0].Channel != e.Channel || len(d.held) == maxParcels || d.size > maxBytes) {
		if err := d.bury(ctx); err != nil {
			return err
		}
	}
	d.held, d.size = append(d.held, e), d.size+len(e.Payload)
	return nil
}

func (d *burial) flush(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.bury(ctx)
}

func (d *burial) bury(ctx context.Context) error {
	if len(d.held) == 0 {
		return nil
	}
	n, err := d.a.queue.RestoreDead(ctx, d.held[0].Channel, d.held...)
	if d.n += n; err == nil {
		d.held, d.size = d.held[:0], 0
	}
	return err
}
