package daemon

import (
	"strings"
	"testing"

	"github.com/shuntmq/shunt/daemon/config"
	"github.com/shuntmq/shunt/internal/redistest"
)

// A job as large as limits.max_body is published and delivered, also where that is the most it may be.
func TestLargestBody(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	r := serving(t, redistest.Start(t).URL(), func(c *config.Config) { c.Admin.Open, c.Limits.MaxBody = true, 64<<20 })
	body := strings.Repeat("a", 64<<20)
	r.want(201, "published", "PUT", r.api+"/api/ns/q", body)
	if status, text := r.do("GET", r.api+"/v1/ns/pull?queues=q", ""); status != 200 || !strings.Contains(text, body) {
		t.Errorf("%d %.300s", status, text)
	}
}
