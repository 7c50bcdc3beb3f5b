package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/oklog/ulid/v2"

	"github.com/shuntmq/shunt/internal/element"
	"github.com/shuntmq/shunt/internal/link"
)

// Incarnation is the entry of a receiver in Redis. Its name has all that others must know of it: a ULID, the number of
// its workers, and its lease in ms.
type Incarnation struct {
	Name    string
	Workers int
	Lease   time.Duration
}

func NewIncarnation(workers int, lease time.Duration) Incarnation {
	name := fmt.Sprintf("%s-%d-%d", element.NewSerial(), workers, lease.Milliseconds())
	return Incarnation{name, workers, lease}
}

// Term is how long the entry outlives its last beat: a lease from the time when the next beat is due. So an outage that
// is shorter than a lease costs none, whenever it begins.
func (i Incarnation) Term() time.Duration { return i.Lease * 4 / 3 }

// MaxWorkers of one Receive: what a name may promise, so that no foreign entry makes a sweep ask for millions of keys.
const MaxWorkers = 10000

func ParseIncarnation(name string) (Incarnation, error) {
	part := strings.Split(name, "-")
	if len(part) == 3 {
		_, bad := ulid.ParseStrict(part[0])
		workers, bad2 := strconv.Atoi(part[1])
		lease, bad3 := strconv.ParseInt(part[2], 10, 40)
		if bad == nil && bad2 == nil && bad3 == nil && workers > 0 && workers <= MaxWorkers && lease > 0 {
			return Incarnation{name, workers, time.Duration(lease) * time.Millisecond}, nil
		}
	}
	return Incarnation{}, fmt.Errorf("shunt: %.80q among the receivers is no incarnation's name: remove it", name)
}

// RegisterIncarnation enters an incarnation among the living of every channel. Only after it may the incarnation take.
// It takes away those whose register failed before, which never held anything. It also returns the process of Redis at
// which the incarnation is entered. An error means that some channel may not have it, or has not replied. A repeat is
// for another name, because an entry may have run out and be listed as dead by then.
func RegisterIncarnation(
	ctx context.Context, l *link.Link, channels []*Keys, i Incarnation, abandoned []string,
) (ServerRun, error) {
	c := link.NewCall()
	AddServerRun(c)
	for _, k := range channels {
		if len(abandoned) > 0 {
			AddForget(c, k, abandoned...)
		}
		c.AddScript(Register, 1, k.Receivers, i.Name, i.Term().Milliseconds())
	}
	if err := l.Run(ctx, c); !c.Answered {
		return "", err
	}
	for _, rep := range c.Replies[1:] {
		if rep.Err != nil {
			return "", rep.Err
		}
	}
	run, err := ServerRunReply(c.Replies[0])
	if link.Classify(err) == link.Unknown && err != nil {
		var wire *link.Error
		if errors.As(err, &wire) {
			return "", err
		}
	}
	return run, nil
}

// AddSupersede lists an incarnation that its own receiver has ended as dead, so that sweeps of any receiver empty
// its lists at any time. With counted the reap raises the recovery counts of what it finds. A repeat may list it
// twice, which costs some looks of sweeps.
func AddSupersede(c *link.Call, k *Keys, name string, counted bool) {
	how := "s"
	if counted {
		how = "c"
	}
	c.AddScript(Supersede, 3, k.Receivers, k.DeadReceivers, k.Keeper, name, how)
}

// AddUnregister takes an incarnation from the living, unless one of its lists has something.
func AddUnregister(c *link.Call, k *Keys, i Incarnation) {
	c.AddScript(Unregister, 1+i.Workers, append(append([]any{k.Receivers}, args(k.AllDoing(i))...), i.Name)...)
}

// UnregisterReply reads the reply to AddUnregister: false where the entry has to stay. A repeat says true.
func UnregisterReply(rep link.Reply) (gone bool, err error) {
	n, err := redis.Int(rep.Value, rep.Err)
	return n == 1, err
}

// AddForget takes an entry of an incarnation away that never took anything.
func AddForget(c *link.Call, k *Keys, names ...string) {
	c.Add("ZREM", append([]any{k.Receivers}, args(names)...)...)
}
