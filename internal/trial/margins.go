package trial

import "time"

// Margins are what the invariants forgive because processes and their ledgers take time.
type Margins struct {
	Order     time.Duration // I10: between a worker's question and its handler's first word
	Lease     time.Duration // I7: from a fault's end until nobody is judged for it: the longest lease, and the judging
	Told      time.Duration // I5: from the execution of a verdict until its process has said so
	Aftermath time.Duration // I5, I18: of a fault that is over: reconnecting, and finding out
	Read      time.Duration // I9, I18: how much later than in Redis a lease may seem to end: a reply may be slow
	Held      time.Duration // I20: how long before that a lease has surely not ended, whatever delayed the reply
}

// LongestLease is Margins.Lease in real time.
const LongestLease = 5 * time.Second

// RealTime has the margins of processes on a machine that has more to do.
func RealTime() Margins {
	return Margins{
		Order:     100 * time.Millisecond,
		Lease:     LongestLease,
		Told:      200 * time.Millisecond,
		Aftermath: 2 * time.Second,
		Read:      250 * time.Millisecond,
		Held:      3 * time.Second,
	}
}

// VirtualTime has those where nothing takes time but what is to take some.
func VirtualTime() *Margins {
	m := RealTime()
	m.Read, m.Held = 50*time.Millisecond, 10*time.Millisecond
	return &m
}

func (h *History) margins() Margins {
	if h.Margins == nil {
		return RealTime()
	}
	return *h.Margins
}

// excuse says whether a fault may have doubled what somebody whom it struck had in hand from one time to another.
func (m Margins) excuse(f Entry, from, to time.Time) bool {
	ends := f.At
	if f.Due.After(ends) {
		ends = f.Due
	}
	return f.At.Before(to.Add(m.Told)) && ends.Add(m.Aftermath).After(from)
}
