package push

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/shuntmq/shunt"
)

// BenchmarkPush is a whole push to an endpoint on this machine that only reads: taken, signed, posted, acked.
func BenchmarkPush(b *testing.B) {
	for _, workers := range []int{1, 8, 64} {
		b.Run(fmt.Sprint(workers, " workers"), func(b *testing.B) {
			var n atomic.Int64
			done := make(chan struct{})
			e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if n.Add(1) == int64(b.N) {
					close(done)
				}
			}))
			defer e.Close()
			s := shared(b)
			ms := make([]shunt.IMessage, b.N)
			for i := range ms {
				ms[i] = shunt.Raw(s.ns()+"/q", []byte(`{"type":"benchmark","data":"of some 50 bytes, as events"}`))
			}
			if err := s.queue.EnqueueAll(context.Background(), ms); err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			s.group("g", e.URL, map[string]any{"workers": workers})
			<-done
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
			s.empty("q")
		})
	}
}
