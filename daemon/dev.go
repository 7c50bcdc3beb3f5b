package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// Dev is a Redis within the process, for development. What it has is gone with the process.
type Dev struct {
	mini *miniredis.Miniredis
	stop context.CancelFunc
	over chan struct{}
}

// StartDev starts it on a free port.
func StartDev() (*Dev, error) {
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		return nil, fmt.Errorf("daemon: start a Redis within the process: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	d := &Dev{mini: m, stop: stop, over: make(chan struct{})}
	go d.age(ctx)
	return d, nil
}

// Args are the flags of a daemon that uses it, and asks for no tokens and has the dashboard.
func (d *Dev) Args() []string {
	return []string{"-pools.default.redis=redis://" + d.mini.Addr(), "-admin.open", "-checks=off", "-dashboard.on"}
}

// age has keys expire: a miniredis does so only when it is told that time has passed.
func (d *Dev) age(ctx context.Context) {
	defer close(d.over)
	const every = 250 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			d.mini.FastForward(every)
		case <-ctx.Done():
			return
		}
	}
}

// Close ends it.
func (d *Dev) Close() {
	d.stop()
	<-d.over
	d.mini.Close()
}

// Lines are three commands that work when the API listens on an address.
func Lines(api string) []string {
	return []string{
		fmt.Sprintf("curl -X PUT -d hello 'http://%s/api/demo/greetings?tries=3'", api),
		fmt.Sprintf("curl 'http://%s/api/demo/greetings?ttr=30&timeout=3'", api),
		fmt.Sprintf("curl 'http://%s/api/demo/greetings/size'", api),
	}
}
