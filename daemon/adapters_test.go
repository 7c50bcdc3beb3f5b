package daemon

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/rpc"
	"net/rpc/jsonrpc"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt/daemon/config"
	"github.com/shuntmq/shunt/internal/redistest"
)

// Both protocols without tokens are off until they are configured, warn at the start, are counted, and end in order.
func TestAdapters(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	url := redistest.Start(t).URL()
	off := serving(t, url)
	if log := off.log.String(); strings.Contains(log, "NO TOKENS") || off.gmq != nil || off.delayq != nil {
		t.Error(log)
	}
	off.stop()
	r := serving(t, url, func(c *config.Config) {
		c.GMQ = config.Adapter{Listen: "127.0.0.1:0", Pool: "default", Prefix: "g."}
		c.Delayq = config.Adapter{Listen: freePort(t), Pool: "default", Prefix: "d.", Allow: []string{"127.0.0.0/8"}}
		c.Admin.Open = true
	})
	if log := r.log.String(); strings.Count(log, `level=WARN msg="THIS PROTOCOL HAS NO TOKENS`) != 2 {
		t.Error(log)
	}
	c, err := jsonrpc.Dial("tcp", r.gmq.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var result string
	push := map[string]string{"id": "1", "topic": "q", "TTR": "60"}
	if err := c.Call("Service.Push", push, &result); err != nil || result != "success" {
		t.Fatal(result, err)
	}
	at := "http://" + r.Config.Delayq.Listen + "/delayq/"
	r.want(200, `"code":"0"`, "POST", at+"ping", "")
	r.want(200, `"code":"0"`, "POST", at+"job/add", `{"jobid":"1","topic":"q","exectime":1}`)
	r.want(200, "g.q", "GET", r.admin+"/metrics", "")
	metrics := r.want(200, "", "GET", r.admin+"/metrics", "")
	for _, want := range []string{
		`shuntd_gmq_requests_total{method="Service.Push",outcome="ok"} 1`, "shuntd_gmq_connections 1",
		`shuntd_delayq_requests_total{code="0",path="/delayq/job/add"} 1`,
		`shuntd_delayq_requests_total{code="0",path="/delayq/ping"} 1`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s", want)
		}
	}
	reloadLimits(t, r, c)
	reloadAdapters(t, r, at)
	waits := c.Go("Service.Pop", []string{"none"}, new(map[string]string), nil)
	until(t, "it waits, and counts among all that do", func() bool { return r.Daemon.api.Waiting() == 1 })
	if r.gmq.Budget != r.Daemon.api.Budget || r.delayq.Budget != r.Daemon.api.Budget {
		t.Error("an interface has a budget of its own")
	}
	r.stop()
	if <-waits.Done; waits.Error == nil || waits.Error.Error() != "empty" {
		t.Error(waits.Error)
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// reloadLimits takes in other limits, which hold for the connections that are open, too.
func reloadLimits(t *testing.T, r *running, client *rpc.Client) {
	t.Helper()
	open, err := net.Dial("tcp", r.gmq.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	c := r.Config
	c.Limits.MaxBody, c.Limits.BodyTimeout = 4*c.Limits.MaxBody, 100*time.Millisecond
	if err := r.Reload(c); err != nil {
		t.Fatal(err)
	}
	if log := r.log.String(); strings.Contains(log, "need a restart") {
		t.Error(log)
	}
	_, _ = io.WriteString(open, `{"method":`)
	_ = open.SetReadDeadline(time.Now().Add(10 * time.Second))
	if got, err := io.ReadAll(open); !strings.Contains(string(got), "did not come in time") {
		t.Errorf("%q %v", got, err)
	}
	c.Limits.BodyTimeout = r.Config.Limits.BodyTimeout
	if err := r.Reload(c); err != nil {
		t.Fatal(err)
	}
	push := map[string]string{"id": "2", "topic": "q", "body": strings.Repeat("x", c.Limits.MaxBody)}
	var result string
	if err := client.Call("Service.Push", push, &result); err != nil || result != "success" {
		t.Error(result, err)
	}
}

// reloadAdapters takes in other networks.
func reloadAdapters(t *testing.T, r *running, at string) {
	t.Helper()
	c := r.Config
	c.GMQ.Allow, c.Delayq.Allow = []string{"192.0.2.0/24"}, []string{"192.0.2.0/24"}
	if err := r.Reload(c); err != nil {
		t.Fatal(err)
	}
	if log := r.log.String(); strings.Contains(log, "need a restart") {
		t.Error(log)
	}
	r.want(http.StatusForbidden, "not allowed", "POST", at+"ping", "")
	refused, err := jsonrpc.Dial("tcp", r.gmq.Addr().String())
	if err == nil {
		if err := refused.Call("Service.Ack", "1", new(bool)); err == nil || strings.Contains(err.Error(), "reserved") {
			t.Error(err)
		}
		_ = refused.Close()
	}
	c.Delayq.Listen, c.Limits.MaxHeader = "127.0.0.1:1", c.Limits.MaxHeader+1
	if err := r.Reload(c); err != nil {
		t.Fatal(err)
	}
	if log := r.log.String(); !strings.Contains(log, fmt.Sprintf("keys=%q", "delayq, limits")) {
		t.Error(log)
	}
}
