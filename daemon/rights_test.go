package daemon

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/shuntmq/shunt/daemon/config"
	"github.com/shuntmq/shunt/internal/redistest"
)

// A Redis user with the rights that the pages name is refused nothing.
func TestRights(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	b := redistest.Start(t)
	for _, page := range []string{"../docs/access.md", "README.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		lines := 0
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "ACL SETUSER ") {
				var args []any
				for _, word := range strings.Fields(line)[1:] {
					args = append(args, word)
				}
				if lines++; b.Do("ACL", args...) != "OK" {
					t.Fatal(line)
				}
			}
		}
		if lines == 0 {
			t.Fatalf("%s names no rights", page)
		}
	}
	endpoint := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(endpoint.Close)
	r := serving(t, "redis://shunt:secret@"+b.Addr(), func(c *config.Config) {
		c.Checks, c.Dashboard.On, c.Push.Allow = "warn", true, []string{"127.0.0.0/8"}
		c.Admin.Accounts = map[string]string{"ann": "pass"}
	})
	ann := []string{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("ann:pass"))}
	until(t, "the hints of others are heard", r.Daemon.access.Hears)
	r.want(201, userToken, "POST", r.admin+"/token/ns?description=d&token="+userToken, "", ann...)
	limit := r.admin + "/token/ns/" + userToken + "/limit"
	r.want(201, "", "POST", limit, `{"read":5,"write":5,"interval":1000}`, ann...)
	id := r.want(201, "published", "PUT", r.api+"/api/ns/q", "hello", "X-Token", userToken)
	id = id[strings.Index(id, `"job_id":"`)+10:]
	r.want(200, "aGVsbG8=", "GET", r.api+"/api/ns/q?token="+userToken, "")
	r.want(204, "", "DELETE", r.api+"/api/ns/q/job/"+id[:strings.Index(id, `"`)]+"?token="+userToken, "")
	r.want(204, "", "PUT", r.api+"/v1/ns/q/recurring/r", `{"every_ms":3600000}`, "X-Token", userToken,
		"Content-Type", "application/json")
	group, body := r.admin+"/push/ns/g", fmt.Sprintf(`{"queues":["p"],"endpoint":"%s","unsigned":true}`, endpoint.URL)
	r.want(201, `"state":"active"`, "POST", group, body, ann...)
	r.want(200, `"state":"paused"`, "POST", group+"/pause", "", ann...)
	r.want(200, `"workers":3`, "PATCH", group, `{"workers":3}`, ann...)
	r.want(200, `"state":"active"`, "POST", group+"/resume", "", ann...)
	r.want(204, "", "DELETE", group, "", ann...)
	r.want(200, "", "DELETE", limit, "", ann...)
	r.want(200, "", "GET", r.admin+"/dashboard/", "", ann...)
	r.want(200, `shuntd_redis_up{pool="default"} 1`, "GET", r.admin+"/metrics", "")
	r.want(204, "", "DELETE", r.admin+"/token/ns/"+userToken, "", ann...)
	r.stop()
	log, err := redis.Values(b.Do("ACL", "LOG"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range log {
		told := fmt.Sprintf("%q", entry)
		if !strings.Contains(told, `"object" "punsubscribe"`) { // which the driver sends before it closes a connection
			t.Error(told)
		}
	}
}
