package trial

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Verdict is what the checker found, in Jepsen's words.
type Verdict struct {
	Attempted  int // messages whose enqueue was begun
	Enqueued   int // K: whose enqueue returned nil
	Unknown    int // whose enqueue has an unknown outcome
	Recovered  int // of these, those that were there after all
	Handled    int // D: handled to an end
	Dead       int
	Acked      int // acks that returned 1
	LateAcks   int // acks that returned 0, and said so
	Allowed    int // duplicates that the faults allow
	Duplicated int
	Lost       int
	Unexpected int
	Orphaned   int
	Recovery   []time.Duration // fault to the next handling
	Lateness   []time.Duration // due to handled, by receivers
	PulledLate []time.Duration // due to handled, by pullers
	TooLate    int             // verdicts that were told their lease was lost
	Skipped    int             // attempts that were counted of a take nobody saw
	Ends       []time.Duration // end of a lease to the next take
	Waits      []time.Duration // enqueued to pulled
	Faults     map[string]int
	Chronicle  string // of the run, which Err ends with

	breaches []breach
}

// breach is one invariant that does not hold, for one message where it is a message's.
type breach struct {
	invariant, id, what string
	story               []Entry
}

func (b breach) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s: %s: %s\n", b.invariant, b.id, b.what)
	for _, e := range b.story {
		fmt.Fprintf(&s, "    %s %s\n", e.At.Format("15:04:05.000000"), e.text())
	}
	return s.String()
}

// Complain adds a breach that is no message's.
func (v *Verdict) Complain(invariant, what string) {
	v.breaches = append(v.breaches, breach{invariant: invariant, what: what})
}

// Broke says which invariants do not hold.
func (v *Verdict) Broke() []string {
	set := make(map[string]bool)
	for _, b := range v.breaches {
		set[b.invariant] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// Caught says whether a seeded defect brought about what it must. Messages were lost, stranded, or doubled beyond what
// faults allow, or a living receiver was taken for dead, or counts are not what happened.
func (v *Verdict) Caught() bool {
	for _, name := range v.Broke() {
		switch name {
		case "I1 lost",
			"I2 not drained",
			"I5 duplicated",
			"I5 unexplained",
			"I7 orphaned",
			"I7 judged",
			"I13 ids left",
			"I14 doubled",
			"I15 two of one id",
			"I16 cancelled",
			"I17 refused",
			"I18 attempts",
			"I19 handed out again",
			"I19 handed out late",
			"I20 lost too soon",
			"I21 miscounted":
			return true
		}
	}
	return false
}

// Err tells of the breaches, at most ten of each invariant, with the history of each offending message.
func (v *Verdict) Err() error {
	if len(v.breaches) == 0 {
		return nil
	}
	var s strings.Builder
	fmt.Fprintf(&s, "%s\n", v)
	told := make(map[string]int)
	for _, b := range v.breaches {
		if told[b.invariant]++; told[b.invariant] <= 10 {
			s.WriteString(b.String())
		}
	}
	for _, name := range v.Broke() {
		fmt.Fprintf(&s, "%s: %d breaches\n", name, told[name])
	}
	s.WriteString(v.Chronicle)
	return fmt.Errorf("%s", s.String())
}

func (v *Verdict) String() string {
	return fmt.Sprintf(
		"enqueued %d (unknown %d, recovered %d), handled %d, dead %d: lost %d, duplicated %d (allowed %d), "+
			"unexpected %d, orphaned %d; acked %d, late acks %d; of leases too late %d, attempts skipped %d, "+
			"ends p99 %v of %d, waits p99 %v",
		v.Enqueued,
		v.Unknown,
		v.Recovered,
		v.Handled,
		v.Dead,
		v.Lost,
		v.Duplicated,
		v.Allowed,
		v.Unexpected,
		v.Orphaned,
		v.Acked,
		v.LateAcks,
		v.TooLate,
		v.Skipped,
		Percentile(v.Ends, 99),
		len(v.Ends),
		Percentile(v.Waits, 99),
	)
}

// Percentile of some durations; 0 of none.
func Percentile(ds []time.Duration, p int) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(ds))
	return s[min(len(s)-1, (len(s)*p+99)/100-1)]
}
