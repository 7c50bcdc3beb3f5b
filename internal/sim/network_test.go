package sim

import (
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shuntmq/shunt/internal/sim/redis"
)

// dialled is a network, and a line of its only process.
func dialled(t *testing.T) (*network, *port, net.Conn) {
	n := &network{server: redis.New(redis.Options{RunID: "1"}), struck: func(*port) {}}
	p := n.port(1, 1)
	l, err := p.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n, p, l
}

// What a process had written before it was killed may still be executed. What its goroutines write afterwards never is,
// also where the server stood still at that moment.
func TestKilledWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, p, l := dialled(t)
		n.change(func() { n.trunk.frozen = true })
		_, _ = io.WriteString(l, "*3\r\n$3\r\nSET\r\n$6\r\nbefore\r\n$1\r\n1\r\n")
		p.kill(true)
		if _, err := io.WriteString(l, "*3\r\n$3\r\nSET\r\n$5\r\nafter\r\n$1\r\n1\r\n"); err == nil {
			t.Error("a killed process could write")
		}
		n.change(func() { n.trunk.frozen = false })
		time.Sleep(time.Second)
		for key, want := range map[string]int{"before": 1, "after": 0} {
			if is, err := n.server.Do("EXISTS", key); err != nil || is != int64(want) {
				t.Errorf("%s: %v, %v", key, is, err)
			}
		}
	})
}

// All lines are cut while a process is killed. Who cut read without the network's mutex that it was dead.
func TestKilledBesideACut(t *testing.T) {
	n, p, _ := dialled(t)
	cuts := make(chan struct{})
	go func() {
		defer close(cuts)
		n.cut(nil)
	}()
	p.kill(false)
	<-cuts
	if len(n.lines) > 0 {
		t.Error("a line of a dead process is left")
	}
}

// Who was cut off hears of it at once, also where the server stands still by then; and when the line goes on, where it
// did not let that through.
func TestEndIsHeard(t *testing.T) {
	for name, before := range map[string]bool{"stopped behind it": true, "in a hole": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, p, l := dialled(t)
				stop := func() { n.change(func() { n.trunk.frozen = true }) }
				if !before {
					stop()
				}
				n.cut(p)
				if before {
					stop()
				}
				time.AfterFunc(time.Second, func() { n.change(func() { n.trunk.frozen = false }) })
				began := time.Now()
				_ = l.SetReadDeadline(began.Add(time.Minute))
				_, err := l.Read(make([]byte, 1))
				if took := time.Since(began); err != errReset || took > time.Second || before && took > 0 {
					t.Errorf("%v after %v", err, took)
				}
				l.Close()
			})
		})
	}
}

// What is on its way in slices arrives at once when the line is whole again, as on a real one. Otherwise a fault would
// delay a long reply for long after its end.
func TestSlices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const echo, slices = 100_000, 30
		n, _, l := dialled(t)
		n.change(func() { n.trunk.quality.slice = 100 })
		began := time.Now()
		time.AfterFunc(slices*time.Millisecond+time.Millisecond/2, func() {
			n.change(func() { n.trunk.quality.slice = 0 })
		})
		_, _ = fmt.Fprintf(l, "*2\r\n$4\r\nECHO\r\n$%d\r\n%*d\r\n", echo, echo, 0)
		reply := make([]byte, echo)
		read, _ := io.ReadFull(l, reply[:(slices-10)*100])
		if took := time.Since(began); took < (slices-11)*time.Millisecond {
			t.Errorf("%d bytes after %v", read, took)
		}
		more, err := io.ReadFull(l, reply[read:])
		if took := time.Since(began); err != nil || took > (slices+2)*time.Millisecond {
			t.Errorf("%d bytes more after %v: %v", more, took, err)
		}
		l.Close()
	})
}
