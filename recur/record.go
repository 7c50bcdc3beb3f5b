package recur

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/element"
)

// A record is the field of {C}.recur that is named as the recurring message is:
//
//	1 revision version state next last count writer ⏎   the head, which changes with every write
//	policy ⏎ spec ⏎ zone ⏎ element                      the body, which only Add changes
//
// The scripts compare heads and keep bodies; they read neither.
type record struct {
	revision string // a ULID, new with every other body: it says which body a head belongs to
	version  int64  // counts the writes of a revision
	paused   bool
	next     int64 // ms of the clock of Redis; 0: there is no next tick
	last     int64 // ms of the clock of Redis, the latest tick that was enqueued; 0: none
	count    int64 // messages of ticks, those refused as duplicates included, and of Enqueue
	// a ULID, another with every write: who tried the same as others must see whether it was done by itself
	writer string

	body    string
	policy  Policy
	spec    Spec
	element element.Element // with no serial
}

// written is the record with another version, which nobody else writes.
func (r record) written() record {
	r.version++
	r.writer = element.NewSerial().String()
	return r
}

// form is the first word of a head.
const form = "1"

func (r *record) head() string {
	state := "active"
	if r.paused {
		state = "paused"
	}
	return fmt.Sprintf("%s %s %d %s %d %d %d %s\n", form, r.revision, r.version, state, r.next, r.last, r.count,
		r.writer)
}

// parseHead reads a head, without or with the body behind it, into what a head has.
func parseHead(raw string) (r record, body string, err error) {
	head, body, ok := strings.Cut(raw, "\n")
	f := strings.Split(head, " ")
	if ok && f[0] != form && strings.Trim(f[0], "0123456789") == "" {
		return r, "", fmt.Errorf("it was written by a newer version of shunt: upgrade this process")
	}
	if !ok || len(f) != 8 || f[3] != "active" && f[3] != "paused" {
		return r, "", fmt.Errorf("it is no record of shunt's: remove it")
	}
	r = record{revision: f[1], paused: f[3] == "paused", writer: f[7]}
	for i, n := range map[int]*int64{2: &r.version, 4: &r.next, 5: &r.last, 6: &r.count} {
		if *n, err = strconv.ParseInt(f[i], 10, 64); err != nil {
			return r, "", fmt.Errorf("it is no record of shunt's: remove it")
		}
	}
	return r, body, nil
}

func parseRecord(raw string) (record, error) {
	r, body, err := parseHead(raw)
	if err != nil {
		return r, err
	}
	part := strings.SplitN(body, "\n", 4)
	policy, bad := strconv.Atoi(part[0])
	if len(part) < 4 || bad != nil {
		return r, fmt.Errorf("it is no record of shunt's: remove it")
	}
	r.body, r.policy, r.spec = body, Policy(policy), Cron(part[1], part[2])
	if r.policy.check() != nil || r.next < 0 {
		return r, fmt.Errorf("it is no record of shunt's: its policy is %d and its next tick %d: remove it", policy,
			r.next)
	}
	r.element, err = element.Decode([]byte(part[3]))
	return r, err
}

// with is the record with another's head.
func (r record) with(head record) record {
	head.body, head.policy, head.spec, head.element = r.body, r.policy, r.spec, r.element
	return head
}

// encoding is what Queue.Payloads has said of the payload.
func (r *record) encoding() string { return r.element.Headers()[shunt.EncodingHeader] }

// plain is the record's body with the payload as Marshal made it; empty where it was not encoded, or cannot be read.
// Encoded twice, one payload may have two forms.
func (r *record) plain(ctx context.Context, e engine, channel string) string {
	from := r.element
	if r.encoding() == "" {
		return ""
	}
	payload, err := e.Payload(ctx, channel, &from)
	if err != nil {
		return ""
	}
	from.Detach()
	from.DropHeader(shunt.EncodingHeader)
	from.Payload = payload
	return body(r.policy, r.spec, from.Encode())
}

func body(p Policy, s Spec, element []byte) string {
	return fmt.Sprintf("%d\n%s\n%s\n%s", int(p), s.text, s.zone, element)
}
