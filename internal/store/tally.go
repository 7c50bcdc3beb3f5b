package store

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/internal/link"
	"github.com/shuntmq/shunt/internal/meter"
)

// The bounds of what a channel keeps of its counts: 64 KB with the latest records and with what tells
// the flushes of processes apart.
const (
	talliesFor   = 35 * 24 * time.Hour // where nothing is counted
	talliesBytes = "12288 16384 18432" // of old records, by form
)

// Form is how finely counts are kept: the length of a record, and how many lie in a chunk. lua/tally.lua has the same.
type Form struct {
	letter string
	Width  time.Duration
	of     int64
	Kept   time.Duration // so long, unless there is too much
}

// Forms are all forms, the finest first.
var Forms = []Form{
	{"m", time.Minute, 20, 3 * time.Hour},
	{"t", 10 * time.Minute, 18, 48 * time.Hour},
	{"d", 24 * time.Hour, 20, 365 * 24 * time.Hour},
}

// AddTally adds what a process has counted in a channel to its counts. The flush of a process and a number is counted
// once, if it is sent again within two hours; the numbers of a process grow.
func AddTally(c *link.Call, k *Keys, process string, number int64, sums []byte) {
	c.AddScript(Tally, 5, k.Counts, k.Prepare, k.Suspect, k.Delay, k.Dead, process, number, sums,
		talliesFor.Milliseconds(), talliesBytes)
}

// chunks are the numbers of the chunks that have the records from one time to another.
func (f *Form) chunks(from, to time.Time) (first, last int64) {
	per := f.Width.Milliseconds() * f.of
	return max(0, from.UnixMilli()) / per, max(0, to.UnixMilli()-1) / per
}

// AddTallies asks for the records of a form from one time to another; EachTally reads them.
func AddTallies(c *link.Call, k *Keys, f *Form, from, to time.Time) {
	first, last := f.chunks(from, to)
	names := make([]any, 0, 4+last-first)
	names = append(names, k.Counts, f.letter, f.letter+"kept")
	for n := first; n <= last; n++ {
		names = append(names, f.letter+strconv.FormatInt(n, 10))
	}
	c.Add("HMGET", names...)
}

var errRecord = errors.New("a record that is cut off")

// EachTally gives what AddTallies came to: each record's time and sums, and from when on records are kept, zero where
// none was dropped.
func EachTally(rep link.Reply, f *Form, from, to time.Time, give func(at time.Time, s *meter.Sums)) (
	kept time.Time, err error,
) {
	all, err := redis.ByteSlices(rep.Value, rep.Err)
	if err != nil || len(all) < 2 {
		return kept, cmp.Or(err, errRecord)
	}
	one := func(record int64, sums []byte) error {
		at := time.UnixMilli(record * f.Width.Milliseconds())
		if !at.Before(to) || !at.Add(f.Width).After(from) {
			return nil
		}
		var s meter.Sums
		err := s.Read(sums)
		give(at, &s)
		return err
	}
	if current := all[0]; len(current) > 0 {
		n, size := binary.Uvarint(current)
		if size <= 0 || n > math.MaxInt64/uint64(f.Width.Milliseconds()) {
			return kept, fmt.Errorf("%s of counts is %w", f.letter, errRecord)
		}
		if err := one(int64(n), current[size:]); err != nil {
			return kept, fmt.Errorf("%s of counts has %w", f.letter, err)
		}
	}
	if len(all[1]) > 0 {
		n, err := strconv.ParseInt(string(all[1]), 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/f.Width.Milliseconds() {
			return kept, fmt.Errorf("%skept of counts is no number: %.20q", f.letter, all[1])
		}
		kept = time.UnixMilli(n * f.Width.Milliseconds())
	}
	first, _ := f.chunks(from, to)
	for i, chunk := range all[2:] {
		err := eachRecord(chunk, func(place byte, sums []byte) error {
			return one((first+int64(i))*f.of+int64(place), sums)
		})
		if err != nil {
			return kept, fmt.Errorf("%s%d of counts has %w", f.letter, first+int64(i), err)
		}
	}
	return kept, nil
}

func eachRecord(chunk []byte, give func(place byte, sums []byte) error) error {
	for len(chunk) > 0 {
		n, size := binary.Uvarint(chunk[1:])
		if size <= 0 || n > uint64(len(chunk)-1-size) {
			return errRecord
		}
		from := 1 + size
		if err := give(chunk[0], chunk[from:from+int(n)]); err != nil {
			return err
		}
		chunk = chunk[from+int(n):]
	}
	return nil
}
