package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shuntmq/shunt"
)

// delivery is what deliver was given.
type delivery struct {
	id, idFrom, typ, at, deadline, run           string
	headers                                      []string
	in, expire, retain, unique, handling, keep   span
	attempts                                     int
	asLines, asText, asFiles, zero, expireToDead bool
}

func deliverCommands(a *app) []*cobra.Command {
	d := delivery{keep: span(7 * 24 * time.Hour)}
	cmd := &cobra.Command{
		Use: "deliver CHANNEL [PAYLOAD | -]", Aliases: []string{"enqueue"},
		Short: "Enqueue one message, or a stream of them",
		Long: `Enqueue one message, or a stream of them.

One message has the payload that is given, or with - all of standard input. A stream comes from standard input:
with --lines a JSON document a line, with --text any text a line, with --files the name of a file a line, of
which each is one payload (-0: names end in a zero byte, as those of find -print0).

A stream that is interrupted tells the name of its run. The same command with --resume NAME, and the same input
from its beginning, delivers the rest and doubles nothing, also after kill -9, and whatever has become of the
messages meanwhile. Redis keeps the notes that this takes for --keep, some 300 bytes for up to 100 messages. To
have a job that can always be run again, give it a --resume of its own from the start.

--id-from takes the ID of each message from a field of its document. An ID is taken for as long as its message
lives, and --unique-for longer: another message with it is refused. By itself that does not keep a second run
from doubling what was handled since.`,
		Example: `  shunt deliver mail '{"to":"ann@example.org"}' --in 10m
  shunt deliver mail --lines --id-from order.id < orders.jsonl
  find /srv/in -name '*.xml' -print0 | shunt deliver parse --files -0 --resume in-2026-11-25`,
		Args: cobra.RangeArgs(1, 2), ValidArgsFunction: a.completeChannel,
		RunE: func(cmd *cobra.Command, args []string) error { return a.deliver(cmd.Context(), args, &d) },
	}
	f := cmd.Flags()
	f.StringVar(&d.id, "id", "", "the message's ID")
	f.StringVar(&d.idFrom, "id-from", "", "with --lines: the `field` that has the ID, as order.id")
	f.StringVar(&d.typ, "type", "", "the type name")
	f.StringArrayVar(&d.headers, "header", nil, "a header `key=value`; may be given again")
	f.Var(&d.in, "in", "due after that length of time")
	f.StringVar(&d.at, "at", "", "due at that `time`")
	f.Var(&d.expire, "expire", "drop it if nobody has taken it after that length of time")
	f.BoolVar(&d.expireToDead, "expire-to-dead", false, "with --expire: let it go to dead")
	f.StringVar(&d.deadline, "deadline", "", "end its handling at that `time`")
	f.Var(&d.retain, "retain", "keep the outcome of a message with an ID so long")
	f.Var(&d.unique, "unique-for", "keep the ID taken so long after the message was handled")
	f.IntVar(&d.attempts, "max-attempts", 0, "how often it is handled at most: 1 to 255, -1 without bound")
	f.Var(&d.handling, "handling-timeout", "how long one handling may take")
	f.BoolVar(&d.asLines, "lines", false, "each line of standard input is a JSON document, a message")
	f.BoolVar(&d.asText, "text", false, "each line of standard input is a message")
	f.BoolVar(&d.asFiles, "files", false, "each line of standard input names a file, a message")
	f.BoolVarP(&d.zero, "null", "0", false, "with --files: names end in a zero byte")
	f.StringVar(&d.run, "resume", "", "the `name` of the run: what it has delivered before is not delivered again")
	f.Var(&d.keep, "keep", "how long Redis remembers what a run has delivered")
	cmd.MarkFlagsMutuallyExclusive("lines", "text", "files")
	cmd.MarkFlagsMutuallyExclusive("in", "at")
	return []*cobra.Command{cmd}
}

// options are those of each message.
func (d *delivery) options() (opts []shunt.Option, err error) {
	add := func(is bool, o shunt.Option) {
		if is {
			opts = append(opts, o)
		}
	}
	when := func(text string, option func(time.Time) shunt.Option) error {
		if text == "" {
			return nil
		}
		t, err := parseTime(text)
		opts = append(opts, option(t))
		return err
	}
	headers, err := pairs(d.headers)
	if err := errors.Join(err, when(d.at, shunt.At), when(d.deadline, shunt.Deadline)); err != nil {
		return nil, err
	}
	for key, value := range headers {
		opts = append(opts, shunt.Header(key, value))
	}
	expire := shunt.Expire
	if d.expireToDead {
		expire = shunt.ExpireToDead
	}
	add(d.id != "", shunt.ID(d.id))
	add(d.typ != "", shunt.Type(d.typ))
	add(d.in != 0, shunt.In(time.Duration(d.in)))
	add(d.expire != 0, expire(time.Duration(d.expire)))
	add(d.retain != 0, shunt.Retain(time.Duration(d.retain)))
	add(d.unique != 0, shunt.UniqueFor(time.Duration(d.unique)))
	add(d.attempts != 0, shunt.MaxAttempts(d.attempts))
	add(d.handling != 0, shunt.Timeout(time.Duration(d.handling)))
	return opts, nil
}

func (a *app) deliver(ctx context.Context, args []string, d *delivery) error {
	many := d.asLines || d.asText || d.asFiles
	switch {
	case many && len(args) == 2:
		return usage("a stream comes from standard input: give no payload")
	case !many && len(args) == 1:
		return usage("deliver wants a payload, - for standard input, or --lines, --text or --files")
	case many && d.id != "":
		return usage("--id is for one message: --id-from takes it from a field")
	case d.idFrom != "" && !d.asLines:
		return usage("--id-from is for --lines")
	case d.zero && !d.asFiles:
		return usage("--null is for --files")
	case d.run != "" && !many:
		return usage("--resume is for a stream")
	case d.expireToDead && d.expire == 0:
		return usage("--expire-to-dead wants --expire")
	case len(d.run) > 200:
		return usage("--resume has %d bytes: want up to 200", len(d.run))
	}
	opts, err := d.options()
	if err != nil {
		return err
	}
	q, err := a.open()
	if err != nil {
		return err
	}
	if many {
		return a.deliverMany(ctx, args[0], d, opts)
	}
	payload := []byte(args[1])
	if args[1] == "-" {
		if payload, err = io.ReadAll(io.LimitReader(a.in, 512<<20)); err != nil {
			return fmt.Errorf("standard input: %w", err)
		}
	}
	var r shunt.Ref
	err = q.Enqueue(ctx, shunt.Raw(args[0], payload), append(opts, shunt.RefTo(&r))...)
	if err == nil || errors.Is(err, shunt.ErrUnknown) {
		a.audit(ctx, shunt.AuditEntry{Verb: "deliver", Channel: args[0], Detail: r.String(), Count: 1}, err)
	}
	if err != nil {
		if errors.Is(err, shunt.ErrUnknown) {
			a.say("it may be there: look with shunt show %s", r)
		}
		return err
	}
	if a.json {
		return a.document(struct {
			Ref     string `json:"ref"`
			Channel string `json:"channel"`
			Serial  string `json:"serial"`
			ID      string `json:"id,omitempty"`
		}{r.String(), r.Channel, r.Serial, r.ID})
	}
	a.tell("%s", printable(r.String()))
	return nil
}

func (a *app) deliverMany(ctx context.Context, channel string, d *delivery, opts []shunt.Option) error {
	s := &shipment{a: a, run: cmp.Or(d.run, newRun()), keep: time.Duration(d.keep), p: a.progress("deliver")}
	in := a.counted(s.p)
	end := byte('\n')
	if d.zero {
		end = 0
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	from := stream(ctx, in, end, func(at int, text []byte) (parcel, error) {
		p := parcel{at: at, channel: channel, payload: text, opts: opts}
		switch {
		case d.asFiles:
			name := strings.TrimSuffix(string(text), "\r")
			info, err := os.Stat(name)
			if err == nil && info.Size() > 512<<20 {
				err = fmt.Errorf("%s has %s", name, size(int(info.Size())))
			}
			if err == nil {
				p.payload, err = os.ReadFile(name)
			}
			return p, err
		case d.asLines && !json.Valid(text):
			return p, fmt.Errorf("the line is no JSON document: %.60q", text)
		case d.idFrom != "":
			id, err := field(text, d.idFrom)
			p.id, p.opts = id, append(opts[:len(opts):len(opts)], shunt.ID(id))
			return p, err
		}
		return p, nil
	})
	err := s.ship(ctx, from)
	return s.finish(ctx, "deliver", channel, fmt.Sprintf("shunt deliver %s … --resume %s", channel, s.run), err)
}

// counted is standard input; where that is a file, progress tells how much of it was read.
func (a *app) counted(p *progress) io.Reader {
	f, is := a.in.(*os.File)
	if !is {
		return a.in
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return a.in
	}
	r := &read{Reader: f}
	p.part = func() float64 { return float64(r.n.Load()) / float64(info.Size()) }
	return r
}
