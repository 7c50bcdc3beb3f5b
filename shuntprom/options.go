package shuntprom

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Options say what a Collector exports. The zero Options are all but the counters of the fleet.
type Options struct {
	// Channels gives the names of the channels that have gauges, and counters of the fleet. It is called at each
	// scrape, by one goroutine at a time, and must heed ctx. Its error makes shunt_up 0. The default is Queue.Channels;
	// Only makes one of names.
	Channels func(ctx context.Context) ([]string, error)
	// MaxChannels bounds the channels that have series: 1 to 10,000, default 1,000.
	MaxChannels int
	// Timeout bounds how long a scrape waits for Redis: 10 ms to 1 min, default 5 s. It should be less than Prometheus'
	// scrape_timeout, whose default is 10 s.
	Timeout time.Duration
	// Local leaves out what Redis tells: only this process's Events are counted.
	Local bool
	// Fleet adds counters of what all processes have counted. It takes one more pipeline a minute for each 1,000
	// channels.
	Fleet bool
	// Quiet turns off the warning that is written to slog.Default when scrapes begin to fail.
	Quiet bool
}

// Only is a func for Options.Channels that gives always the same names.
func Only(names ...string) func(context.Context) ([]string, error) {
	names = slices.Clone(names)
	return func(context.Context) ([]string, error) { return names, nil }
}

func (o *Options) setDefaults() error {
	if o.MaxChannels == 0 {
		o.MaxChannels = 1000
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second
	}
	var errs []error
	if o.MaxChannels < 1 || o.MaxChannels > 10_000 {
		errs = append(errs, fmt.Errorf("shuntprom: Options.MaxChannels is %d: want 1 to 10000", o.MaxChannels))
	}
	if o.Timeout < 10*time.Millisecond || o.Timeout > time.Minute {
		errs = append(errs, fmt.Errorf("shuntprom: Options.Timeout is %v: want 10ms to 1m", o.Timeout))
	}
	if o.Local && o.Fleet {
		errs = append(errs, errors.New("shuntprom: Options.Local and Options.Fleet are set: Local asks Redis nothing, "+
			"and the fleet's counters come from Redis: set one of them"))
	}
	return errors.Join(errs...)
}

// names calls Channels, whose panic is an error.
func (o *Options) names(ctx context.Context) (names []string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("shuntprom: Options.Channels panicked: %v", p)
		}
	}()
	return o.Channels(ctx)
}

// bounded gives the names that have series, in order, and how many have none.
func (o *Options) bounded(names []string) (some []string, rest int) {
	names = slices.Clone(names)
	slices.Sort(names)
	names = slices.Compact(names)
	some = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !isChannel(name) })
	some = some[:min(len(some), o.MaxChannels)]
	return some, len(names) - len(some)
}

// isChannel says whether IMessage.Channel may give the name: one that somebody has listed by hand may be any text, and
// Overview refuses all names for one.
func isChannel(name string) bool {
	return name != "" && len(name) <= 200 && utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool {
		return r == '{' || r == '}' || unicode.IsSpace(r) || unicode.IsControl(r)
	})
}
