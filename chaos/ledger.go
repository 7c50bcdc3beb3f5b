package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What became of an operation: every one is begun by invoke and ended by at most one of the others.
const (
	invoke = "invoke"
	ok     = "ok"
	fail   = "fail" // surely not done
	info   = "info" // nobody knows, or something that was merely seen
)

// Operations. What else stands in a ledger is the kind of a shunt.Event.
const (
	enqueue  = "enqueue"
	handle   = "handle"
	fault    = "fault"    // N duplicates are allowed for it, By is who was struck, Note may be spared
	closed   = "closed"   // By has shut down, in order if it is ok, and said all that it had to say
	unclean  = "unclean"  // By has ended, and could not shut down in order; Note says why
	count    = "count"    // By counted what ID names, first as invoke and at the end as ok: the second may not be more
	pace     = "pace"     // By counted so many messages a second of ID: the second may not be less than nine tenths
	healing  = "healing"  // the fault is over
	delayed  = "delayed"  // the harness was late with a blow by more than it can explain
	quiet    = "quiet"    // no fault since Due: what was enqueued before has been handled by now
	judged   = "judged"   // Note is an incarnation whose lease was found to be over
	pulling  = "pulling"  // By pulls from now on
	keeping  = "keeping"  // By keeps all channels from now on
	pulled   = "pulled"   // By has the message ID under a lease to Due, a little more than Redis means it to be
	extended = "extended" // By has the lease of the message ID put off, at least to Due
	ready    = "ready"    // all that was due at Due, or leased until then, can be taken
	answered = "answered" // what By was told of a verdict on Serial, which Note names: fail, where it was too late
	remains  = "remains"  // Note is an incarnation that is still entered in the key ID
)

// tooLate ends the note of a verdict that was told ErrLeaseLost.
const tooLate = "lost its lease"

// spared notes a fault that is no excuse for taking its victims for dead.
const spared = "spared"

// entry is one line of a ledger.
type entry struct {
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

func (e entry) String() string {
	due := int64(0)
	if !e.Due.IsZero() {
		due = e.Due.UnixNano()
	}
	return fmt.Sprintf("%d\t%s\t%s\t%s\t%q\t%s\t%d\t%d\t%d\t%q\n", e.At.UnixNano(), e.By, e.Op, e.Phase, e.ID, e.Serial,
		e.Attempt, e.N, due, e.Note)
}

func parseEntry(line string) (e entry, err error) {
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
	e = entry{
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

// ledger is what one process says. Each entry is one write to a file opened for appending, so that a SIGKILL takes
// nothing back that was said.
type ledger struct {
	by   string
	file *os.File
}

func openLedger(dir, by string) (*ledger, error) {
	f, err := os.OpenFile(filepath.Join(dir, by+".ledger"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	return &ledger{by: by, file: f}, err
}

// say appends entries, all in one write.
func (l *ledger) say(es ...entry) {
	now := time.Now()
	var b strings.Builder
	for i := range es {
		if es[i].At.IsZero() {
			es[i].At = now
		}
		es[i].By = cmp.Or(es[i].By, l.by)
		b.WriteString(es[i].String())
	}
	if _, err := l.file.WriteString(b.String()); err != nil {
		panic(err) // a history with gaps proves nothing
	}
}

// readLedgers merges all ledgers of a directory by time.
func readLedgers(dir string) ([]entry, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.ledger"))
	if err != nil {
		return nil, err
	}
	var all []entry
	for _, name := range names {
		text, err := os.ReadFile(name)
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
func sortEntries(es []entry) {
	slices.SortStableFunc(es, func(a, b entry) int { return a.At.Compare(b.At) })
}
