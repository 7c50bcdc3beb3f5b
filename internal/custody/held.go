// Package custody is what there is to know of a message that lies in a doing list, without a goroutine: whether it may
// be handled, what becomes of it, by which command it leaves, and which Event reports that. A worker asks for what it
// holds; whoever else takes messages asks the same.
package custody

import (
	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// Held is a message in a doing list.
type Held struct {
	store.Held
	Keys  *store.Keys
	List  store.Key // the doing list
	Newer bool      // the version of its element is not known here
}

// Known is what Redis says of a message with an id, or a time of its own, that is about to be handled.
type Known struct {
	Now       int64  // ms, by the server's clock
	Taken     int64  // ms, by the server's clock: not before then was it taken
	Read      bool   // the records were read; else none of them can have anything to say
	Record    []byte // of its id
	Cancelled bool
}

// Owns says whether the message's id is its own. One that did not have to be asked for has lost its id to nobody.
func (h *Held) Owns(k Known) bool {
	rec, ok := k.record()
	return !k.Read || ok && rec.Serial == h.Serial && rec.State != 'u'
}

// Admit is the verdict on a message that is not to be handled, because it was cancelled, has expired or is past its
// deadline; nil: it may be handled. Its OwnsID is set.
func (h *Held) Admit(k Known, maxSize int) *Verdict {
	expires, by := h.Extra.Expires, k.Taken
	switch {
	case h.OwnsID && k.Read: // the record knows best
		rec, _ := k.record()
		expires = rec.Expires
	case h.Extra.ID != "" && !h.OwnsID: // two of one id would run
		by = k.Now
	case h.Extra.ID == "" && h.Attempts+h.Recoveries > 0: // it was taken before
		expires = 0
	}
	switch late := expires > 0 && expires <= by; {
	case k.Cancelled:
		return &Verdict{Verdict: store.Verdict{Fate: store.Cancelled}}
	case late && h.Extra.ToDead:
		return h.Refuse(ErrExpired, maxSize)
	case late:
		return &Verdict{Verdict: store.Verdict{Fate: store.Expired}}
	case h.Extra.Deadline > 0 && h.Extra.Deadline <= k.Now:
		return h.Refuse(ErrDeadline, maxSize)
	}
	return nil
}

// Leave adds the command that makes a verdict true.
func (h *Held) Leave(c *link.Call, v *Verdict, b *store.Bounds) {
	store.AddLeave(c, h.Keys, h.List, h.Held, &v.Verdict, b)
}

// record is the record, read.
func (k *Known) record() (element.Record, bool) { return element.ParseRecord(k.Record) }
