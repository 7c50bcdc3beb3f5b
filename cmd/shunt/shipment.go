package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/shuntmq/shunt"
)

const (
	// maxParcels and maxBytes bound a chunk, and thereby the memory of a shipment beside one message.
	maxParcels = 100 // as EnqueueOnce has it
	maxBytes   = 1 << 20
	// maxLine bounds a line of input: one has the largest message of all as base64.
	maxLine = 704 << 20
	// idle is how long a chunk waits for more input.
	idle = 50 * time.Millisecond
)

// parcel is one message of a stream.
type parcel struct {
	at      int // its line or file in the input, from 1
	channel string
	id      string
	payload []byte
	opts    []shunt.Option
	message shunt.IMessage // nil: the payload, with opts
	err     error          // nothing follows
}

// shipment enqueues a stream of messages so that a run that was interrupted can be run again from the beginning of the
// same input, and doubles nothing. Redis notes each chunk in the step that enqueues it, under the run's name and the
// place of the chunk's first message, with a hash of the chunk. A run that comes later is told by the note how many
// messages the chunk had, and passes over them; so the chunks need not be cut alike.
type shipment struct {
	a    *app
	run  string        // its name
	keep time.Duration // how long Redis keeps the notes
	p    *progress

	Delivered int `json:"delivered"`
	Before    int `json:"before"`             // an earlier call of this run had delivered them
	Refused   int `json:"refused"`            // their ID is taken
	Restored  int `json:"restored,omitempty"` // dead letters that are dead again
}

// ship enqueues what comes until the channel is closed or a parcel has an error.
func (s *shipment) ship(ctx context.Context, from <-chan parcel) error {
	var held []parcel
	var bad error
	over := false
	fill := func(enough func() bool) error {
		for !over && !enough() {
			wait := time.NewTimer(idle)
			select {
			case <-ctx.Done():
				wait.Stop()
				return errInterrupted
			case p, more := <-from:
				if !more && ctx.Err() != nil { // the end of the stream is that of ctx
					wait.Stop()
					return errInterrupted
				}
				if over, bad = !more || p.err != nil, p.err; !over {
					held = append(held, p)
				}
			case <-wait.C:
				if len(held) > 0 {
					return nil
				}
			}
			wait.Stop()
		}
		return nil
	}
	for {
		if err := fill(func() bool { return len(held) >= maxParcels || bytesOf(held) >= maxBytes }); err != nil {
			return err
		}
		if len(held) == 0 {
			return bad
		}
		chunk := held[:1]
		for len(chunk) < len(held) && len(chunk) < maxParcels && held[len(chunk)].channel == chunk[0].channel {
			chunk = held[:len(chunk)+1]
		}
		res, err := s.send(ctx, chunk)
		if err != nil {
			return err
		}
		n := len(chunk)
		if res.Before {
			n = len(res.Refs)
			for len(held) < n && !over {
				if err := fill(func() bool { return len(held) >= n }); err != nil {
					return err
				}
			}
			if len(held) < n || hashOf(held[:n]) != res.Note {
				if bad != nil {
					return bad
				}
				return fmt.Errorf("run %s had other messages at %d of the input: give it the input that it had, or "+
					"another name", s.run, held[0].at)
			}
			for _, r := range res.Refs {
				if r == (shunt.Ref{}) {
					s.Refused++
				} else {
					s.Before++
				}
			}
		} else {
			for i, err := range res.Errs {
				if err == nil {
					s.Delivered++
				} else if s.Refused++; s.Refused <= 10 {
					s.a.say("%d of the input: %s", chunk[i].at, oneLine(err))
				}
			}
		}
		s.p.add(n)
		held = append(held[:0], held[n:]...)
	}
}

// send enqueues one chunk. While Redis is away it waits for it, unless it was never there.
func (s *shipment) send(ctx context.Context, chunk []parcel) (res shunt.OnceResult, err error) {
	ms := make([]shunt.IMessage, len(chunk))
	for i, p := range chunk {
		if ms[i] = p.message; p.message == nil {
			ms[i] = shunt.With(shunt.Raw(p.channel, p.payload), p.opts...)
		}
	}
	once := shunt.Once{
		Channel: chunk[0].channel, Key: fmt.Sprintf("%s/%d", s.run, chunk[0].at), For: s.keep, Note: hashOf(chunk),
		Always: true, // else one whose ID is free by then would begin another chunk in the next run
	}
	patience := s.a.timeout
	if s.Delivered+s.Before > 0 {
		patience = max(patience, 30*time.Second)
	}
	for until := time.Now().Add(patience); ; {
		bounded, cancel := context.WithDeadline(ctx, until)
		res, err = s.a.queue.EnqueueOnce(bounded, once, ms...)
		cancel()
		if !errors.Is(err, shunt.ErrUnknown) || ctx.Err() != nil || time.Now().After(until) {
			break
		}
	}
	if err != nil && ctx.Err() != nil {
		err = errInterrupted // the note tells the next run whether this chunk was enqueued
	}
	return res, err
}

func bytesOf(ps []parcel) (n int) {
	for _, p := range ps {
		n += len(p.payload)
	}
	return n
}

// hashOf is the note of a chunk.
func hashOf(ps []parcel) string {
	h := sha256.New()
	for _, p := range ps {
		fmt.Fprintf(h, "%d %d %d\n%s%s%s", len(p.channel), len(p.id), len(p.payload), p.channel, p.id, p.payload)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// finish tells what has become of a shipment. again is the command that goes on.
func (s *shipment) finish(ctx context.Context, verb, channel, again string, err error) error {
	s.p.end()
	a := s.a
	if s.Delivered+s.Restored > 0 {
		e := shunt.AuditEntry{Verb: verb, Channel: channel, Detail: "run " + s.run, Count: s.Delivered + s.Restored}
		a.audit(ctx, e, err)
	}
	if a.json {
		result := struct {
			Run string `json:"run"`
			*shipment
		}{s.run, s}
		if e := a.document(result); err == nil {
			err = e
		}
	} else if err == nil || s.Delivered+s.Before+s.Restored > 0 {
		text := "delivered " + messages(s.Delivered)
		if s.Restored > 0 {
			text += fmt.Sprintf(", put %d back into dead", s.Restored)
		}
		if s.Before > 0 {
			text += fmt.Sprintf(", and %d before", s.Before)
		}
		if s.Refused > 0 {
			text += fmt.Sprintf("; refused %d, for the ID is taken", s.Refused)
		}
		a.tell("%s", text)
	}
	if err != nil && !isUsage(err) {
		a.say("to go on, which doubles nothing, give the same input to: %s", again)
	}
	return err
}

// newRun is a name that no other run has.
func newRun() string {
	return "run-" + time.Now().UTC().Format("20060102-150405.000000000")
}

// stream reads input on a goroutine that ends with it or with ctx: a parcel for each line or, where end is 0, each
// name between zero bytes.
func stream(
	ctx context.Context, in io.Reader, end byte, parse func(at int, text []byte) (parcel, error),
) <-chan parcel {
	to := make(chan parcel)
	go func() {
		defer close(to)
		give := func(p parcel) bool {
			select {
			case to <- p:
				return p.err == nil
			case <-ctx.Done():
				return false
			}
		}
		lines := bufio.NewScanner(in)
		lines.Buffer(make([]byte, 64<<10), maxLine)
		lines.Split(func(data []byte, eof bool) (int, []byte, error) {
			if i := bytes.IndexByte(data, end); i >= 0 {
				return i + 1, data[:i], nil
			}
			if eof && len(data) > 0 {
				return len(data), data, nil
			}
			return 0, nil, nil
		})
		at := 0
		for lines.Scan() {
			at++
			if len(bytes.TrimSpace(lines.Bytes())) == 0 {
				continue
			}
			p, err := parse(at, bytes.Clone(lines.Bytes()))
			if err != nil {
				give(parcel{err: fmt.Errorf("%d of the input: %w", at, err)})
				return
			}
			if p.channel != "" && !give(p) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			give(parcel{err: fmt.Errorf("after %d of the input: %w", at, err)})
		}
	}()
	return to
}

// read counts what was read of an input of known length.
type read struct {
	io.Reader
	n atomic.Int64
}

func (r *read) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.n.Add(int64(n))
	return n, err
}

// field is the text of a field of a JSON object, named by a path with dots.
func field(document []byte, path string) (string, error) {
	for name := range strings.SplitSeq(path, ".") {
		var of map[string]json.RawMessage
		if err := json.Unmarshal(document, &of); err != nil || of[name] == nil {
			return "", fmt.Errorf("there is no field %q", path)
		}
		document = of[name]
	}
	var text string
	if json.Unmarshal(document, &text) == nil {
		return text, nil
	}
	var n json.Number
	if json.Unmarshal(document, &n) == nil {
		return n.String(), nil
	}
	return "", fmt.Errorf("the field %q is neither a text nor a number", path)
}
