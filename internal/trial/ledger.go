package trial

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// What became of an operation: every one is begun by invoke and ended by at most one of the others.
const (
	Invoke = "invoke"
	OK     = "ok"
	Fail   = "fail" // surely not done
	Info   = "info" // nobody knows, or something that was merely seen
)

// Operations. What else stands in a ledger is the kind of a shunt.Event.
const (
	Enqueue  = "enqueue"
	Handle   = "handle"
	Fault    = "fault"    // N duplicates are allowed for it, By is who was struck, Note may be spared
	Closed   = "closed"   // By has shut down, in order if it is ok, and said all that it had to say
	Unclean  = "unclean"  // By has ended, and could not shut down in order; Note says why
	Count    = "count"    // By counted what ID names, first as invoke and at the end as ok: the second may not be more
	Pace     = "pace"     // By counted so many messages a second of ID: the second may not be less than nine tenths
	Healing  = "healing"  // the fault is over; ID is the channel that it was of, if it was of one
	Delayed  = "delayed"  // the harness was late with a blow by more than it can explain
	Quiet    = "quiet"    // no fault since Due: what was enqueued before, but on channel ID, has begun by now
	Alone    = "alone"    // ID waits to be handled alone, so a Quiet says nothing of it
	judged   = "judged"   // Note is an incarnation whose lease was found to be over
	Takes    = "takes"    // By takes from the channel ID from now on, with N workers
	Gathered = "gathered" // worker N of By has the message ID in a batch whose handler begins
	Returned = "returned" // that handler has returned
	Pulling  = "pulling"  // By pulls from now on
	Keeping  = "keeping"  // By keeps all channels from now on
	Pulled   = "pulled"   // By has the message ID under a lease to Due, a little more than Redis means it to be
	unpulled = "unpulled" // a Pull of By, worker N, has failed; Note says why
	decodes  = "decodes"  // By decodes a payload for a Pull: from invoke to ok
	Settled  = "settled"  // By, worker N, is through with what its last Pull has brought
	Extended = "extended" // By has the lease of the message ID put off, at least to Due
	Ready    = "ready"    // all that was due at Due, or leased until then, can be taken
	Answered = "answered" // what By was told of a verdict on Serial, which Note names: fail, where it was too late
	remains  = "remains"  // Note is an incarnation that is still entered in the key ID
)

// tooLate ends the note of a verdict that was told ErrLeaseLost.
const tooLate = "lost its lease"

// KillServer is the fault after which Redis may come back with an older state.
const KillServer = "kill server"

// HungUp and CutIdle are the faults that Redis cuts a connection off, because a reply is too large for it, or because
// nothing was asked for a while.
const (
	HungUp  = "hung up"
	CutIdle = "idle"
)

// What a fault's Note may say.
const (
	Spared = "spared" // the server was away, which is no excuse to take its victims for dead, or to end their leases
	Brief  = "brief"  // its victim can go on at once, so it costs no attempt, unless it lasts for most of a lease
)

// LaterOnly is the Note of a Quiet that leaves out of its channel only what was enqueued for later.
const LaterOnly = "later only"

// ForEver is when a killed process comes back.
var ForEver = time.Unix(1<<33, 0)

// Entry is one line of a ledger.
type Entry struct {
	At      time.Time
	By      string // the process
	Op      string
	Phase   string
	ID      string // of the message
	Serial  string // of the element
	Attempt int
	N       int
	Due     time.Time // not to be handled before
	Note    string    // of an enqueue its plan
}

// begun is when a handler got what it begins with. Others of its batch may have come first.
func (e Entry) begun() time.Time {
	if e.Due.IsZero() {
		return e.At
	}
	return e.Due
}

func (e Entry) String() string {
	due := int64(0)
	if !e.Due.IsZero() {
		due = e.Due.UnixNano()
	}
	return fmt.Sprintf("%d\t%s\t%s\t%s\t%q\t%s\t%d\t%d\t%d\t%q\n", e.At.UnixNano(), e.By, e.Op, e.Phase, e.ID, e.Serial,
		e.Attempt, e.N, due, e.Note)
}

// text is what a reader is shown of it, beside its time.
func (e Entry) text() string {
	return strings.Join(strings.Split(strings.TrimSpace(e.String()), "\t")[1:], " ")
}

func parseEntry(line string) (e Entry, err error) {
	part := strings.Split(line, "\t")
	if len(part) != 10 {
		return e, fmt.Errorf("a line of %d fields", len(part))
	}
	at, err1 := strconv.ParseInt(part[0], 10, 64)
	id, err2 := strconv.Unquote(part[4])
	attempt, err3 := strconv.Atoi(part[6])
	n, err4 := strconv.Atoi(part[7])
	due, err5 := strconv.ParseInt(part[8], 10, 64)
	note, err6 := strconv.Unquote(part[9])
	e = Entry{
		At:      time.Unix(0, at),
		By:      part[1],
		Op:      part[2],
		Phase:   part[3],
		ID:      id,
		Serial:  part[5],
		Attempt: attempt,
		N:       n,
		Note:    note,
	}
	if due != 0 {
		e.Due = time.Unix(0, due)
	}
	return e, errors.Join(err1, err2, err3, err4, err5, err6)
}

// Ledger is where one process says what it does.
type Ledger struct {
	By    string
	put   func([]Entry)
	open  func() bool               // nil: it always is
	right func(time.Time) time.Time // what the process's clock says, by the right one; nil: it is right
}

// NewLedger is one that makes one Write of each Say. What was said to a file that was opened for appending, no SIGKILL
// takes back.
func NewLedger(by string, to io.Writer) *Ledger {
	return &Ledger{By: by, put: func(es []Entry) {
		var b strings.Builder
		for _, e := range es {
			b.WriteString(e.String())
		}
		if _, err := io.WriteString(to, b.String()); err != nil {
			panic(err) // a history with gaps proves nothing
		}
	}}
}

// As is where somebody else says what they do, in the same place.
func (l *Ledger) As(by string) *Ledger { return &Ledger{by, l.put, l.open, l.right} }

// Behind is a ledger of which open says, for each Say, whether it is written to; it may wait before it does. Events go
// by the process's clock, and right says when that was.
func (l *Ledger) Behind(open func() bool, right func(time.Time) time.Time) *Ledger {
	return &Ledger{l.By, l.put, open, right}
}

// timed is when an Event was.
func (l *Ledger) timed(t time.Time) time.Time {
	if l.right == nil {
		return t
	}
	return l.right(t)
}

// Say adds entries, all at once.
func (l *Ledger) Say(es ...Entry) {
	if l.open != nil && !l.open() {
		return
	}
	now := time.Now()
	for i := range es {
		if es[i].At.IsZero() {
			es[i].At = now
		}
		es[i].By = cmp.Or(es[i].By, l.By)
	}
	l.put(es)
}

// Memory holds what several ledgers of one process say.
type Memory struct {
	mu   sync.Mutex
	said []Entry
}

// Ledger is one that writes there.
func (m *Memory) Ledger(by string) *Ledger {
	return &Ledger{By: by, put: func(es []Entry) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.said = append(m.said, es...)
	}}
}

// Entries are all that was said until now, by time.
func (m *Memory) Entries() []Entry {
	m.mu.Lock()
	all := slices.Clone(m.said)
	m.mu.Unlock()
	sortEntries(all)
	return all
}

// Last is the last of the entries said until now that is one of those; the zero value where none is.
func (m *Memory) Last(is func(Entry) bool) Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range slices.Backward(m.said) {
		if is(e) {
			return e
		}
	}
	return Entry{}
}

// Read merges all files of a directory whose names end in .ledger, by time.
func Read(dir fs.FS) ([]Entry, error) {
	names, err := fs.Glob(dir, "*.ledger")
	if err != nil {
		return nil, err
	}
	var all []Entry
	for _, name := range names {
		text, err := fs.ReadFile(dir, name)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			whole, ended := strings.CutSuffix(line, "\n")
			if !ended {
				break // still being written, or cut off by a full disk: it was never said
			}
			e, err := parseEntry(whole)
			if err != nil {
				return nil, fmt.Errorf("%s: %q: %w", name, whole, err)
			}
			all = append(all, e)
		}
	}
	sortEntries(all)
	return all, nil
}

// sortEntries keeps the order of what was said at one time.
func sortEntries(es []Entry) {
	slices.SortStableFunc(es, func(a, b Entry) int { return a.At.Compare(b.At) })
}
