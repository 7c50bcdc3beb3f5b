package trial

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/store"
)

// Plans: what a message makes its handler do. Those with a number wait so many milliseconds. What concerns the first
// attempt only ends well at the second.
const (
	PlanOK      = "ok"
	PlanRetry   = "retry"   // fails once
	PlanAfter   = "after:"  // fails once and asks for that wait
	PlanReject  = "reject"  // goes to dead
	PlanTwice   = "reject2" // fails once, then goes to dead
	PlanPanic   = "panic"   // once
	PlanGoexit  = "goexit"  // once
	PlanHang    = "hang"    // once, for ever, whatever its context says
	PlanKill    = "kill"    // kills its process, each time
	PlanSlow    = "slow:"   // and gives up when its context ends
	PlanDeaf    = "deaf:"   // and does not look at its context
	PlanLate    = "late:"   // once, for so long, and does not look at its context: it is given up before it fails
	PlanTimeout = "timeout" // once, until its context ends
	PlanUntil   = "until:"  // so many ms of Unix time have passed, and does not look at its context
	PlanAsk     = "ask:"    // Redis something, and then for so long, and does not look at its context
	PlanExtend  = "extend:" // for so long, while a puller puts the end of its lease off
	PlanRead    = "read:"   // its payload takes so long to decode, where that is looked at
	PlanHold    = "hold:"   // for ever, in the process of that name
	PlanInside  = "inside"  // tries to end what would wait for it, and fails unless that is refused
)

const backoff = 20 * time.Millisecond

// Message is what all processes of a run enqueue and handle: "id plan checksum filler". The checksum is over the rest.
type Message struct {
	On       string // a channel
	ID, Plan string
	Filler   []byte
	corrupt  string

	// Of a batch: when it began, and the receiver that had the message then. When its turn comes that may be another.
	gathered time.Time
	holder   string

	// the prototype's
	Log  *Ledger
	Hang chan struct{} // what hangs, hangs until it is closed; nil: for ever
	Die  func()        // ends the process, and does not return
	Ask  func()        // asks Redis something, by the process's own connections

	Queue *shunt.Queue // whose receiver handles it; nil: none does

	ackFirst *redis.Pool // where handlers ack their message before they begin, by connections of this
}

func (m *Message) Channel() string           { return m.On }
func (m *Message) Backoff(int) time.Duration { return backoff }
func (m *Message) Marshal() ([]byte, error)  { return m.Payload(), nil }
func (m *Message) sum() string               { return fmt.Sprintf("%08x", crc32.ChecksumIEEE(m.rest())) }
func (m *Message) rest() []byte              { return append([]byte(m.ID+" "+m.Plan+" "), m.Filler...) }

// Payload is what Marshal gives, for whoever enqueues without shunt.
func (m *Message) Payload() []byte {
	return append([]byte(m.ID+" "+m.Plan+" "+m.sum()+" "), m.Filler...)
}

// ParseMessage reads a payload; one that is none is a message all the same, and corrupt.
func ParseMessage(payload []byte) *Message {
	m := &Message{}
	part := bytes.SplitN(payload, []byte(" "), 4)
	if len(part) != 4 {
		m.ID, m.corrupt = fmt.Sprintf("%.40q", payload), "no message"
		return m
	}
	m.ID, m.Plan, m.Filler = string(part[0]), string(part[1]), part[3]
	if m.sum() != string(part[2]) {
		m.corrupt = fmt.Sprintf("of %d bytes, checksum %s and not %s", len(payload), part[2], m.sum())
	}
	return m
}

func (m *Message) Unmarshal(payload []byte) (shunt.IMessage, error) {
	n := ParseMessage(payload)
	n.On, n.Log, n.Hang, n.Die, n.Ask, n.ackFirst = m.On, m.Log, m.Hang, m.Die, m.Ask, m.ackFirst
	n.Queue = m.Queue
	return n, nil
}

// Resolve says what it does before and after it does it.
func (m *Message) Resolve(ctx context.Context) error {
	i, _ := shunt.FromContext(ctx)
	i.Receiver = cmp.Or(m.holder, i.Receiver)
	e := Entry{Op: Handle, Phase: Invoke, ID: m.ID, Serial: i.Serial, Attempt: i.Attempt, N: i.Worker, Note: i.Receiver,
		Due: m.gathered}
	if m.corrupt != "" {
		e.ID, e.Note = "corrupt "+m.ID, m.corrupt
	}
	if m.ackFirst != nil {
		m.ack(ctx, i) // before the ledger has it, so that who kills a handler that has begun comes after the ack
	}
	m.Log.Say(e)
	e.At, e.Due = time.Time{}, time.Time{}
	if i.Attempt == 1 && (m.Plan == PlanPanic || m.Plan == PlanGoexit) {
		e.Phase, e.Note = Fail, m.Plan
		m.Log.Say(e)
		if m.Plan == PlanPanic {
			panic("as planned")
		}
		runtime.Goexit()
	}
	err := m.act(ctx, i.Attempt)
	e.Phase, e.Note = OK, ""
	if err != nil {
		e.Phase, e.Note, e.At = Fail, err.Error(), time.Now()
		if ms, is := millis(m.Plan, PlanAfter); is {
			e.Due = e.At.Add(ms)
		} else if !strings.HasPrefix(m.Plan, PlanReject) {
			e.Due = e.At.Add(backoff)
		}
		_, late := millis(m.Plan, PlanLate)
		if c := context.Cause(ctx); late || c == shunt.ErrLeaseLost || c == shunt.ErrShutdown {
			e.Phase, e.Due = Info, time.Time{} // that is no attempt
		}
	}
	m.Log.Say(e)
	return err
}

// ack removes the message from its worker's list, as it lies there.
func (m *Message) ack(ctx context.Context, i shunt.Info) {
	inc, err := store.ParseIncarnation(i.Receiver)
	if err != nil {
		panic(err)
	}
	list := store.KeysOf(i.Channel).Doing(inc, i.Worker)
	c := m.ackFirst.Get()
	defer c.Close()
	es, _ := redis.ByteSlices(c.Do("LRANGE", list, 0, -1))
	for _, raw := range es {
		if e, _ := element.Decode(raw); e.SerialString() == i.Serial {
			_, _ = c.Do("LREM", list, 1, raw)
		}
	}
}

// act is the handler itself.
func (m *Message) act(ctx context.Context, attempt int) error {
	if m.Plan == PlanHold+m.Log.By {
		<-ctx.Done()
		return ctx.Err()
	}
	if ms, is := millis(m.Plan, PlanSlow); is {
		select {
		case <-time.After(ms):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if ms, is := millis(m.Plan, PlanDeaf); is {
		time.Sleep(ms)
		return nil
	}
	if ms, is := millis(m.Plan, PlanAsk); is {
		m.Ask()
		time.Sleep(ms)
		return nil
	}
	if ms, is := millis(m.Plan, PlanUntil); is {
		time.Sleep(time.Until(time.UnixMilli(ms.Milliseconds())))
		return nil
	}
	if m.Plan == PlanReject || m.Plan == PlanTwice && attempt > 1 {
		return shunt.Reject(errors.New("as planned"))
	}
	if m.Plan == PlanKill {
		m.Die()
	}
	if m.Plan == PlanInside && m.Queue != nil {
		return m.inside(ctx)
	}
	if n := following(m.Plan); n > 0 {
		return m.follow(ctx, attempt, n)
	}
	if attempt > 1 {
		return nil
	}
	if m.Plan == PlanFlood {
		return m.flood(ctx)
	}
	if ms, is := millis(m.Plan, PlanAfter); is {
		return shunt.RetryAfter(ms, errors.New("as planned"))
	}
	if ms, is := millis(m.Plan, PlanLate); is {
		time.Sleep(ms)
		return ctx.Err()
	}
	switch m.Plan {
	case PlanRetry, PlanTwice:
		return errors.New("as planned")
	case PlanHang:
		<-m.Hang
	case PlanTimeout:
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// inside tries to end the receiver that waits for it.
func (m *Message) inside(ctx context.Context) error {
	for what, end := range map[string]func() error{"Shutdown": func() error { return m.Queue.Shutdown(ctx) },
		"Shutdown beside": func() error { return m.Queue.Shutdown(context.Background()) }, "Close": m.Queue.Close} {
		if err := end(); !errors.Is(err, shunt.ErrInHandler) {
			return fmt.Errorf("inside a handler %s gave %v", what, err)
		}
	}
	return nil
}

// millis is the number in a plan of that kind.
func millis(plan, kind string) (time.Duration, bool) {
	text, is := strings.CutPrefix(plan, kind)
	n, err := strconv.Atoi(text)
	return time.Duration(n) * time.Millisecond, is && err == nil
}
