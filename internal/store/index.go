package store

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
)

// Holder is the text in the index for the worker that handles a message with an id.
func Holder(i Incarnation, worker int) string { return i.Name + "/" + strconv.Itoa(worker) }

// Mark is the entry in the index for a message that is about to be handled: the holder, the attempt, and ms since 1970
// by the clock here.
func Mark(i Incarnation, worker, attempt int, now time.Time) []byte {
	return fmt.Appendf(nil, "%s %d %d", Holder(i, worker), attempt, now.UnixMilli())
}

// leaseHolder begins the holder of a leased message; the lease's name follows.
const leaseHolder = "lease."

// Handling says which worker, or which lease, has a message. The zero Handling means none.
type Handling struct {
	Receiver  string // the incarnation's name
	Worker    int
	Lease     string // its name; in place of Receiver and Worker
	Attempt   int
	StartedAt time.Time // by the clock of the process that handles it
}

// Some says that somebody has it.
func (h *Handling) Some() bool { return h.Receiver != "" || h.Lease != "" }

// ParseMark reads what Mark made; zero where it cannot be read.
func ParseMark(raw []byte) (h Handling) {
	f := strings.Fields(string(raw))
	if len(f) != 3 {
		return h
	}
	if name, leased := strings.CutPrefix(f[0], leaseHolder); leased {
		h.Lease = name
	} else {
		receiver, worker, _ := strings.Cut(f[0], "/")
		h.Receiver = receiver
		h.Worker, _ = strconv.Atoi(worker)
	}
	h.Attempt, _ = strconv.Atoi(f[1])
	ms, _ := strconv.ParseInt(f[2], 10, 64)
	h.StartedAt = time.UnixMilli(ms)
	return h
}

// Marks are the messages with an id that one worker is about to handle.
type Marks struct {
	N    int
	At   func(i int) *element.Element
	Mark func(i int) []byte
	// some may have expired: then it is a script that notes them, which a full Redis does not refuse either
	Expires bool
	// Taken is when, at the earliest and in ms of the server's clock, the ith was taken. nil: that is not known yet.
	// What had not expired then is noted too.
	Taken func(i int) int64
}

// Consultation is what Redis is asked of messages of one channel that are about to be handled: it notes in whose hands
// they are, and says whether one was cancelled meanwhile or has expired. A cancellation looks for the note and leaves
// its own mark in one step, so one of the two sees the other. It may be repeated.
type Consultation struct {
	Marks
	Read bool // the records of their ids are to be read; set where they were
	// Record gives the record of the ith message's id, if it has one, and Cancelled says that it was cancelled.
	Record    func(i int, raw []byte)
	Cancelled func(i int)

	Now  int64 // ms of the server's clock
	Full bool  // Redis has refused the notes for want of memory; they were made by a script that it does not refuse
	Late bool  // some were not noted, because they have expired
}

// Ask asks in one pipeline, and in a second one only where something is cancelled. send sends c, and its error ends
// that.
func (x *Consultation) Ask(c *link.Call, k *Keys, send func(*link.Call) error) error {
	x.Now, x.Full, x.Late = 0, false, false
	for {
		c.Reset()
		x.addStart(c, k)
		if err := send(c); err != nil {
			return err
		}
		some, full, err := x.started(c.Replies)
		switch {
		case full:
			x.Full, x.Expires = true, true
			continue
		case err != nil || !some:
			return err
		}
		break
	}
	c.Reset()
	for i := range x.N {
		c.Add("SISMEMBER", k.arg.Cancelled)
		c.AddElements(x.At(i).Serial[:])
	}
	if !x.Read {
		x.addRecords(c, k)
	}
	if err := send(c); err != nil {
		return err
	}
	return x.cancelled(c.Replies)
}

func (x *Consultation) addStart(c *link.Call, k *Keys) {
	if x.N > 0 {
		if x.Expires {
			c.AddScript(Start, 3, k.arg.Receivers, k.arg.Running, k.arg.IDs)
		} else {
			c.Add("HSET", k.arg.Running)
		}
		for i := range x.N {
			e := x.At(i)
			if !x.Expires {
				c.AddElements(e.Serial[:], x.Mark(i))
				continue
			}
			var taken []byte
			if x.Taken != nil {
				taken = strconv.AppendInt(nil, x.Taken(i), 10)
			}
			c.AddElements(e.Extra.IDBytes(), e.Serial[:], x.Mark(i), taken)
		}
		c.Add("EXISTS", k.arg.Cancelled)
		if x.Read {
			x.addRecords(c, k)
		}
	}
	c.Add("TIME") // after the mark: what has one had not expired then
}

// started reads the replies. An index that cannot be read holds up no message: so only what waiting may mend is an
// error.
func (x *Consultation) started(replies []link.Reply) (someCancelled, full bool, err error) {
	last := len(replies) - 1
	for i, rep := range replies {
		switch {
		case i == 0 && x.N > 0 && !x.Expires && link.Code(rep.Err) == "OOM":
			return false, true, nil
		case i == last || link.Classify(rep.Err) != link.Failed && link.Code(rep.Err) != "WRONGTYPE":
			err = cmp.Or(err, rep.Err)
		}
	}
	if err != nil {
		return false, false, err
	}
	if t, _ := redis.Int64s(replies[last].Value, nil); len(t) == 2 {
		x.Now = t[0]*1000 + t[1]/1000
	}
	if x.N == 0 {
		return false, false, nil
	}
	if x.Expires {
		n, err := redis.Int(replies[0].Value, replies[0].Err)
		x.Late = err == nil && n < x.N
	}
	if x.Read {
		x.records(replies[2])
	}
	n, _ := redis.Int(replies[1].Value, replies[1].Err)
	return n > 0, false, nil
}

// cancelled reads the replies to the second pipeline.
func (x *Consultation) cancelled(replies []link.Reply) (err error) {
	for i, rep := range replies {
		if link.Code(rep.Err) != "WRONGTYPE" {
			err = cmp.Or(err, rep.Err)
		}
		if n, _ := redis.Int(rep.Value, rep.Err); i < x.N && n == 1 {
			x.Cancelled(i)
		}
	}
	if !x.Read {
		x.Read = true
		x.records(replies[x.N])
	}
	return err
}

// addRecords adds the command that reads the records of their ids.
func (x *Consultation) addRecords(c *link.Call, k *Keys) {
	c.Add("HMGET", k.arg.IDs)
	for i := range x.N {
		c.AddElements(x.At(i).Extra.IDBytes())
	}
}

// records gives each record that a reply has, as bytes.
func (x *Consultation) records(rep link.Reply) {
	found, _ := redis.Values(rep.Value, rep.Err)
	for i, v := range found {
		raw, _ := v.([]byte)
		x.Record(i, raw)
	}
}
