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

// Handling says which worker handles a message. The zero Handling means none.
type Handling struct {
	Receiver  string // the incarnation's name
	Worker    int
	Attempt   int
	StartedAt time.Time // by the clock of the process that handles it
}

// ParseMark reads what Mark made; zero where it cannot be read.
func ParseMark(raw []byte) (h Handling) {
	f := strings.Fields(string(raw))
	if len(f) != 3 {
		return h
	}
	receiver, worker, _ := strings.Cut(f[0], "/")
	h.Receiver = receiver
	h.Worker, _ = strconv.Atoi(worker)
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
}

// AddStart is for messages of one channel that are about to be handled. It adds the entries of their worker in the
// index, the question whether any message is cancelled, and the time. With records it also asks for their records.
// StartReply reads the replies. It may be repeated.
func AddStart(c *link.Call, k *Keys, m Marks, records bool) {
	if m.N > 0 {
		if m.Expires {
			c.AddScript(Start, 3, k.arg.Receivers, k.arg.Running, k.arg.IDs)
		} else {
			c.Add("HSET", k.arg.Running)
		}
		for i := range m.N {
			e := m.At(i)
			if m.Expires {
				c.AddElements(e.Extra.IDBytes())
			}
			c.AddElements(e.Serial[:], m.Mark(i))
		}
		c.Add("EXISTS", k.arg.Cancelled)
		if records {
			addRecords(c, k, m)
		}
	}
	c.Add("TIME") // after the mark: what has one had not expired then
}

// Started is what Redis said of messages that are about to be handled.
type Started struct {
	Full          bool  // they could not be noted for want of memory: to be asked again with Expires
	Now           int64 // ms
	SomeCancelled bool  // AddCancelled is to be asked
	Records       link.Reply
}

// StartReply reads the replies to AddStart. An index that cannot be read holds up no message: so only what
// waiting may mend is an error.
func StartReply(replies []link.Reply, m Marks, records bool) (s Started, err error) {
	last := len(replies) - 1
	for i, rep := range replies {
		switch {
		case i == 0 && m.N > 0 && !m.Expires && link.Code(rep.Err) == "OOM":
			return Started{Full: true}, nil
		case i == last || link.Classify(rep.Err) != link.Failed && link.Code(rep.Err) != "WRONGTYPE":
			err = cmp.Or(err, rep.Err)
		}
	}
	if err != nil {
		return s, err
	}
	if t, _ := redis.Int64s(replies[last].Value, nil); len(t) == 2 {
		s.Now = t[0]*1000 + t[1]/1000
	}
	if m.N > 0 {
		n, _ := redis.Int(replies[1].Value, replies[1].Err)
		s.SomeCancelled = n > 0
		if records {
			s.Records = replies[2]
		}
	}
	return s, nil
}

// AddCancelled adds the question which of them are cancelled, and with records the one for their records;
// CancelledReply reads it.
func AddCancelled(c *link.Call, k *Keys, m Marks, records bool) {
	for i := range m.N {
		c.Add("SISMEMBER", k.arg.Cancelled)
		c.AddElements(m.At(i).Serial[:])
	}
	if records {
		addRecords(c, k, m)
	}
}

// CancelledReply gives each of n whether it is cancelled, and returns the reply with the records.
func CancelledReply(replies []link.Reply, n int, give func(i int, cancelled bool)) (records link.Reply, err error) {
	for i, rep := range replies {
		if link.Code(rep.Err) != "WRONGTYPE" {
			err = cmp.Or(err, rep.Err)
		}
		if i < n {
			is, _ := redis.Int(rep.Value, rep.Err)
			give(i, is == 1)
		} else {
			records = rep
		}
	}
	return records, err
}

// addRecords adds the command that reads the records of their ids.
func addRecords(c *link.Call, k *Keys, m Marks) {
	c.Add("HMGET", k.arg.IDs)
	for i := range m.N {
		c.AddElements(m.At(i).Extra.IDBytes())
	}
}

// EachRecord gives each record that a reply has, as bytes.
func EachRecord(rep link.Reply, give func(i int, raw []byte)) {
	found, _ := redis.Values(rep.Value, rep.Err)
	for i, v := range found {
		raw, _ := v.([]byte)
		give(i, raw)
	}
}
