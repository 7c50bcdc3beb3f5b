package daemon

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/shuntmq/shunt/daemon/config"
	"github.com/shuntmq/shunt/internal/redistest"
)

// BenchmarkJob publishes, consumes and acks a job of 100 bytes: three requests.
func BenchmarkJob(b *testing.B) {
	r := serving(b, redistest.Start(b).URL(), func(c *config.Config) { c.Log.Access = false })
	r.want(201, userToken, "POST", r.admin+"/token/ns?description=d&token="+userToken, "")
	body := strings.Repeat("x", 100)
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	ask := func(method, path string) string {
		req, err := http.NewRequest(method, r.api+"/api/ns/"+path, strings.NewReader(body))
		if err != nil {
			b.Error(err)
			return ""
		}
		if method != http.MethodPut {
			req.Body = http.NoBody
		}
		req.Header.Set("X-Token", userToken)
		res, err := client.Do(req)
		if err != nil {
			b.Error(err)
			return ""
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode >= 300 {
			b.Error(res.Status, err)
		}
		return string(text)
	}
	b.SetParallelism(16)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			ask("PUT", "q")
			_, rest, _ := strings.Cut(ask("GET", "q?timeout=10"), `"job_id":"`)
			id, _, _ := strings.Cut(rest, `"`)
			ask("DELETE", fmt.Sprint("q/job/", id))
		}
	})
}
