package top

import (
	"cmp"
	"time"

	"github.com/shuntmq/shunt"
)

// paceOver is from when on two looks tell a rate: processes add what they counted once in 10 s.
const paceOver = 20 * time.Second

// pace is how fast messages come to a channel and leave it, from two looks within one minute of Redis: then
// Overview.Lately has the same minutes in both.
type pace struct {
	from     time.Time // Lately's
	at       time.Time // of the first of the looks
	in, out  int64     // counted then
	inS      float64   // a second
	outS     float64
	measured bool
}

func left(c *shunt.Counts) int64 { return c.Acked + c.Dead + c.Cancelled + c.Expired }

// next is the pace after another look.
func (p pace) next(o *shunt.Overview, at time.Time) pace {
	c := &o.Lately
	switch long := at.Sub(p.at); {
	case !c.From.Equal(p.from):
		p.from, p.at, p.in, p.out = c.From, at, c.Enqueued, left(c)
	case long >= paceOver:
		p.inS, p.outS = float64(c.Enqueued-p.in)/long.Seconds(), float64(left(c)-p.out)/long.Seconds()
		p.measured = true
	}
	if !p.measured { // of the last ten minutes
		over := max(60, cmp.Or(o.TrendOver, c.To.Sub(c.From)).Seconds())
		p.inS, p.outS = float64(c.Enqueued)/over, float64(left(c))/over
	}
	return p
}

// paced takes in the paces of channels. There are as many as channels are listed.
func (m *model) paced(all []shunt.Overview, at time.Time) {
	now := make(map[string]pace, len(all))
	for i := range all {
		now[all[i].Channel] = m.paces[all[i].Channel].next(&all[i], at)
	}
	if m.screen.kind == channelScreen { // of one channel; the others wait
		for name, p := range m.paces {
			if _, is := now[name]; !is {
				now[name] = p
			}
		}
	}
	m.paces = now
}
