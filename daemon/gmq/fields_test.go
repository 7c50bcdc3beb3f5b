package gmq

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/daemon/budget"
	"github.com/shuntmq/shunt/internal/redistest"
)

// Whatever a field is, the answer is clear, and the connection goes on.
func TestFields(t *testing.T) {
	t.Parallel()
	redistest.Leaks(t)
	s := newSite(t, func(v *Server) { v.Budget = bounded(budget.Limits{MaxBody: 100}) })
	c := s.dial()
	long := strings.Repeat("x", 300)
	for _, x := range []struct {
		request     string // without its id
		result, err any
	}{
		{`"method":"Service.Push","params":[{}]`, "job.id is empty", nil},
		{`"method":"Service.Push","params":[]`, "job.id is empty", nil},
		{`"method":"Service.Push","params":[null]`, "job.id is empty", nil},
		{`"method":"Service.Push","params":[{"id":null,"topic":"q"}]`, "job.id is empty", nil},
		{`"method":"Service.Push","params":[{"id":"a"}]`, "job.topic is empty", nil},
		{`"method":"Service.Push","params":[{"id":"` + long + `","topic":"q"}]`, "job.id is wrong: want an id of up " +
			`to 255 bytes that does not begin with "serial:"`, nil},
		{`"method":"Service.Push","params":[{"id":"serial:x","topic":"q"}]`, "job.id is wrong: want an id of up " +
			`to 255 bytes that does not begin with "serial:"`, nil},
		{`"method":"Service.Push","params":[{"id":"a","topic":"` + long + `"}]`, "job.topic is wrong: want a name " +
			"without slashes, braces, blanks and control characters, of up to 200 bytes with the prefix", nil},
		{`"method":"Service.Push","params":[{"id":"a","topic":"a b"}]`, "job.topic is wrong: want a name " +
			"without slashes, braces, blanks and control characters, of up to 200 bytes with the prefix", nil},
		{`"method":"Service.Push","params":[{"id":"a","topic":"q","body":"` + long + `"}]`, string(errLarge), nil},
		{`"method":"Service.Push","params":[{"id":"a","topic":"q","delay":-1}]`, nil,
			"json: cannot unmarshal number into Go value of type string"},
		{`"method":"Service.Push","params":[{"id":["a"],"topic":"q"}]`, nil,
			"json: cannot unmarshal array into Go value of type string"},
		{`"method":"Service.Push","params":["a"]`, nil,
			"json: cannot unmarshal string into Go value of type map[string]string"},
		{`"method":"Service.Push","params":{"id":"a"}`, nil,
			"json: cannot unmarshal object into Go value of type [1]map[string]string"},
		{`"method":"Service.Push","params":null`, nil, string(errNoParams.Error())},
		{`"method":"Service.Push"`, nil, errNoParams.Error()},
		{`"method":"Service.Push","params":[{"id":"neg","topic":"q","delay":"-9223372036854775809","TTR":"-1"}]`,
			"success", nil},
		{`"method":"Service.Push","params":[{"id":"big","topic":"later","delay":"99999999999999999999","TTR":` +
			`"99999999999999999999"}]`, "success", nil},
		{`"method":"Service.Push","params":[{"id":"huge","topic":"huge","TTR":"99999999999999999999"}, 5, "more"]`,
			"success", nil},
		{`"method":"Service.Push","params":[{"id":"nul","topic":"q","body":"\u0000\ud800","other":"y"}]`, "success",
			nil},
		{`"method":"Service.Push","params":[{"id":"` + "\xff" + `","topic":"q"}]`, nil, errUTF8.Error()},
		{`"method":"Service.Pop","params":[[]]`, nil, string(errNoTopics)},
		{`"method":"Service.Pop","params":[null]`, nil, string(errNoTopics)},
		{`"method":"Service.Pop","params":[[""]]`, nil, "a topic is wrong: want a name without slashes, braces, " +
			"blanks and control characters, of up to 200 bytes with the prefix"},
		{`"method":"Service.Pop","params":["q"]`, nil, "json: cannot unmarshal string into Go value of type []string"},
		{`"method":"Service.Pop","params":[[1]]`, nil, "json: cannot unmarshal number into Go value of type string"},
		{`"method":"Service.Pop","params":[` + topicsUpTo(65) + `]`, nil, string(errTopics)},
		{`"method":"Service.Pop"`, nil, errNoParams.Error()},
		{`"method":"Service.Ack","params":[1]`, nil, "json: cannot unmarshal number into Go value of type string"},
		{`"method":"Service.Ack","params":[]`, nil, string(errNotReserved)},
		{`"method":"Service.Ack"`, nil, errNoParams.Error()},
		{`"method":"Service.Nothing","params":[1]`, nil, "rpc: can't find service Service.Nothing"},
		{`"method":"nothing"`, nil, "rpc: service/method request ill-formed: nothing"},
		{`"method":""`, nil, "rpc: service/method request ill-formed: "},
		{`"x":1`, nil, "rpc: service/method request ill-formed: "},
		{`"method":5`, nil, "json: cannot unmarshal number into Go struct field request.method of type string"},
		{`"method":"` + strings.Repeat("é", 5000) + `"`, nil, "rpc: service/method request ill-formed: " +
			strings.Repeat("é", 80) + "…"},
	} {
		for _, id := range []string{"1", `"a"`, "null", `{"a":[1,2]}`, "1e400"} {
			if _, ok := x.result.(string); ok && x.result == "success" && id != "1" {
				continue
			}
			a := c.send(fmt.Sprintf("{%s,\"id\":%s}", x.request, id)).answer()
			if a.result != x.result || a.err != x.err || a.id != id {
				t.Errorf("%.120s: %+v, want %v, %v", x.request, a, x.result, x.err)
			}
		}
	}
	if a := c.send(`{"method":"Service.Ack","params":["x"]}`).answer(); a.id != "null" {
		t.Errorf("without an id: %+v", a)
	}
	got := s.pop(s.client(), "huge")
	if got["TTR"] != "9223372036854775807" {
		t.Error(got)
	}
	es, err := s.queue.List(context.Background(), s.server.Topics.Prefix+"later", shunt.StateDelay, 0, 0)
	if err != nil || len(es) != 1 || es[0].DueAt.Before(time.Now().AddDate(98, 0, 0)) {
		t.Error(es, err)
	}
	if log := s.log.String(); log != "" {
		t.Error(log)
	}
}

func topicsUpTo(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf(`"q%d"`, i)
	}
	return "[" + strings.Join(names, ",") + "]"
}
