package shunt

import (
	"context"

	"github.com/shuntmq/shunt/internal/bell"
	"github.com/shuntmq/shunt/internal/crowd"
	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/store"
)

// station is what a Queue has of one server for those who pull: the bells that wake them, the sight by which leases are
// judged, and the upkeep of what nobody else may keep.
type station struct {
	server *link.Server
	bells  *bell.Tower
	sight  *sight
	upkeep *upkeep
	takes  crowd.Crowd[haul]
	acks   crowd.Crowd[settlement]
}

// takesTogether is how many takes go together at most.
const takesTogether = 32

// stationOf is the station at the server of a channel.
func (q *Queue) stationOf(k *store.Keys) *station { return q.stationAt(q.router.For(k.Name)) }

func (q *Queue) stationAt(server *link.Server) *station {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := q.stations[server]
	if at == nil {
		s := &sight{q: q, server: server}
		at = &station{server: server, sight: s, bells: bell.New(server, q.conf.ReplyTimeout, q.bells),
			upkeep: newUpkeep(q, server, s)}
		at.takes = crowd.Crowd[haul]{Base: q.ending, Timeout: q.conf.EnqueueTimeout, Most: takesTogether,
			Send: at.takeOnes, Begin: q.begin, End: q.waits.Done}
		at.acks = crowd.Crowd[settlement]{Base: q.life, Timeout: q.conf.EnqueueTimeout, Most: settledTogether,
			Size: (*settlement).size, Bytes: settledBytes, Begin: q.begin, End: q.waits.Done,
			Send: func(ctx context.Context, _ *store.Keys, all []*settlement) { q.sendVerdicts(ctx, server, all) }}
		if q.stations == nil {
			q.stations = make(map[*link.Server]*station)
		}
		q.stations[server] = at
	}
	return at
}

// maxBells is how many channels are waited for with a connection each; all others are asked 10 times a second.
const maxBells = 256

// bells is how many connections those who wait may have: where the Pool bounds them, what receivers leave, and at most
// half of what the links leave.
func (q *Queue) bells() int {
	most := q.Pool.MaxActive
	if most <= 0 {
		return maxBells
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return min(maxBells, max(0, min((most-3)/2, most-q.connections())))
}

// pulls has channels kept while somebody pulls from them, and for a while after over is called.
func (s *station) pulls(from []*store.Keys) (over func()) {
	for _, k := range from {
		s.upkeep.pull(k)
	}
	return func() {
		for _, k := range from {
			s.upkeep.pulled(k)
		}
	}
}
