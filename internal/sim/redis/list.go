package redis

import "slices"

// list is a ring.
type list struct {
	ring    []string // as many places as a power of two
	head, n int
	bytes   int
}

func (l *list) kind() string { return "list" }
func (l *list) size() int    { return 64 + l.bytes + 16*l.n }

func (l *list) copied() value {
	c := *l
	c.ring = slices.Clone(l.ring)
	return &c
}

func (l *list) place(i int) *string { return &l.ring[(l.head+i)&(len(l.ring)-1)] }

func (l *list) grow() {
	if l.n < len(l.ring) {
		return
	}
	ring := make([]string, max(4, 2*l.n))
	for i := range l.n {
		ring[i] = *l.place(i)
	}
	l.ring, l.head = ring, 0
}

// push adds an element at the left end, or at the right one.
func (l *list) push(left bool, e string) {
	l.grow()
	l.n++
	l.bytes += len(e)
	if left {
		l.head = (l.head - 1) & (len(l.ring) - 1)
		*l.place(0) = e
	} else {
		*l.place(l.n - 1) = e
	}
}

// pop removes the element at an end; there must be one.
func (l *list) pop(left bool) string {
	at := l.place(0)
	if !left {
		at = l.place(l.n - 1)
	}
	e := *at
	*at = ""
	l.n--
	l.bytes -= len(e)
	if left {
		l.head = (l.head + 1) & (len(l.ring) - 1)
	}
	return e
}

// remove takes the element at a place.
func (l *list) remove(i int) {
	if i < l.n/2 {
		for ; i > 0; i-- {
			l.swap(i, i-1)
		}
		l.pop(true)
		return
	}
	for ; i < l.n-1; i++ {
		l.swap(i, i+1)
	}
	l.pop(false)
}

// insert adds an element before a place.
func (l *list) insert(i int, e string) {
	l.push(false, e)
	for j := l.n - 1; j > i; j-- {
		l.swap(j, j-1)
	}
}

func (l *list) swap(i, j int) {
	a, b := l.place(i), l.place(j)
	*a, *b = *b, *a
}

// bounds are the first and the last place of a range as commands give it, within n; none if from is beyond to.
func bounds(from, to, n int) (int, int) {
	if from < 0 {
		from = max(0, from+n)
	}
	if to < 0 {
		to += n
	}
	return from, min(to, n-1)
}
