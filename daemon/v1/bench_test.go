package v1

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/oklog/ulid/v2"
)

// BenchmarkPublish publishes 100 bytes a request: plain, and with an Idempotency-Key.
func BenchmarkPublish(b *testing.B) {
	for _, keyed := range []bool{false, true} {
		b.Run(map[bool]string{false: "plain", true: "keyed"}[keyed], func(b *testing.B) {
			s := newSite(b)
			transport := &http.Transport{MaxIdleConnsPerHost: 100}
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport}
			body := strings.Repeat("x", 100)
			var failed atomic.Int64
			b.SetParallelism(16)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					req, _ := http.NewRequest("POST", s.server.URL+"/v1/"+s.ns+"/q/messages", strings.NewReader(body))
					req.Header.Set("X-Token", s.token)
					if keyed {
						req.Header.Set("Idempotency-Key", ulid.Make().String())
					}
					res, err := client.Do(req)
					if err != nil {
						failed.Add(1)
						continue
					}
					_, _ = io.Copy(io.Discard, res.Body)
					res.Body.Close()
					if res.StatusCode != 201 {
						failed.Add(1)
					}
				}
			})
			if n := failed.Load(); n > 0 {
				b.Errorf("%d failed", n)
			}
		})
	}
}
