package browser

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/shuntmq/shunt"
	"github.com/shuntmq/shunt/recur"
)

// hostile is what nobody should be called.
const hostile = `"><script>alert(1)</script><img/src=x/onerror=alert(1)>`

// mail is what the receivers of channel mail.welcome get.
type mail struct {
	To   string `json:"to"`
	Kind string `json:"kind"`
	Hold bool   `json:"hold,omitempty"` // its handler holds it until the test ends
}

// planted names some of what plant leaves in Redis.
type planted struct {
	ready, retried, died, done, held, named, hostile shunt.Ref
}

// plant fills Redis as a shop's is, and as somebody fills it who means harm.
func (d *desk) plant() planted {
	d.Helper()
	p := d.shop()
	channel := hostile + strings.Repeat("long", 20)
	d.fail(channel, 2, hostile+strings.Repeat("unbroken", 40), true)
	p.hostile = d.enqueue(channel, hostile+"\n</pre>"+strings.Repeat("x", 400), shunt.ID(hostile), shunt.Type(hostile),
		shunt.Header(hostile, strings.Repeat(hostile, 5)))
	tt := &recur.Timetable{Queue: d.q}
	m := shunt.Raw("report.nightly", []byte(hostile))
	if err := tt.Add(context.Background(), hostile, recur.Every(24*time.Hour), m); err != nil {
		d.Fatal(err)
	}
	d.audit(shunt.AuditEntry{By: hostile, Verb: hostile, Channel: hostile, Detail: hostile,
		Error: strings.Repeat(hostile, 3)})
	return p
}

func (d *desk) audit(e shunt.AuditEntry) {
	d.Helper()
	if err := d.q.Audit(context.Background(), e); err != nil {
		d.Fatal(err)
	}
}

// shop fills Redis by enqueueing, handling and failing.
func (d *desk) shop() (p planted) {
	d.Helper()
	ctx := context.Background()
	d.welcome(ctx, &p)
	d.webhooks(ctx, &p)
	for i := range 130 {
		d.enqueue("image.resize", fmt.Sprintf(`{"src":"s3://photos/2026/%05d.heic","width":[320,960,1920]}`, 7000+i))
	}
	p.ready = d.enqueue("image.resize", `{"src":"s3://photos/last.heic","width":[320]}`, shunt.ID("photo:last"))
	for i := range 40 {
		d.enqueue("billing.invoice", fmt.Sprintf(`{"customer":%d,"month":"2026-10","lines":12}`, 4100+i),
			shunt.ID(fmt.Sprintf("invoice:2026-10:%d", 4100+i)), shunt.In(time.Duration(i+1)*7*time.Minute),
			shunt.Header("tenant", "acme"))
	}
	d.fail("短信.发送", 6, "运营商网关返回错误：号码 %d 处于黑名单，已停止下发", true)
	p.named = d.enqueue("短信.发送", `{"手机":"+86 138 0013 8000","内容":"您的验证码是 4711，十分钟内有效。"}`, shunt.ID("验证码:4711"),
		shunt.Type("验证码"), shunt.Header("租户", "华东一区"))
	o := shunt.PullOptions{Channels: []string{"image.resize"}, Max: 3, Lease: time.Hour}
	if _, err := d.q.Pull(ctx, o); err != nil {
		d.Fatal(err)
	}

	d.plantRecurring()
	d.audit(shunt.AuditEntry{By: "ann", Verb: "retry-all", Channel: "webhook.deliver", Count: 212,
		Detail: `dead: like="503 Service Unavailable"`})
	d.audit(shunt.AuditEntry{By: "王芳", Verb: "purge", Channel: "短信.发送", Count: 9, Detail: "done"})
	d.audit(shunt.AuditEntry{By: "ann", Verb: "pause", Channel: "report.nightly", Count: 1, Detail: "prune"})
	return p
}

// plantRecurring has three messages recur, one of which is paused.
func (d *desk) plantRecurring() {
	d.Helper()
	ctx := context.Background()
	tt := &recur.Timetable{Queue: d.q}
	for name, s := range map[string]recur.Spec{"digest": recur.Cron("0 7 * * 1-5", "Europe/Berlin"),
		"prune": recur.Every(15 * time.Minute), "对账": recur.Cron("30 2 * * *", "Asia/Shanghai")} {
		if err := tt.Add(ctx, name, s, shunt.Raw("report.nightly", []byte(`{"report":"daily"}`))); err != nil {
			d.Fatal(err)
		}
	}
	if err := tt.Pause(ctx, "report.nightly", "prune"); err != nil {
		d.Fatal(err)
	}
}

// welcome has a receiver at work: of its 4 workers 3 are held up, and 60 messages are done.
func (d *desk) welcome(ctx context.Context, p *planted) {
	d.Helper()
	var done, held sync.WaitGroup
	release := make(chan struct{})
	welcome := shunt.Define("mail.welcome", func(ctx context.Context, m mail) error {
		if m.Hold {
			held.Done()
			<-release
			return nil
		}
		defer done.Done()
		return shunt.SetResult(ctx, []byte(`{"accepted":true,"id":"<20261125.4711@mx.example.org>"}`))
	})
	held.Add(3)
	done.Add(60)
	shutdown, err := d.q.Receive(ctx, welcome, 4)
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() {
		close(release)
		if err := shutdown(ctx); err != nil {
			d.Error(err)
		}
	})
	for i := range 3 {
		err = errors.Join(err, d.q.Enqueue(ctx, welcome.Message(mail{To: "bob@example.org", Kind: "trial", Hold: true}),
			shunt.ID(fmt.Sprint("trial:", i)), shunt.RefTo(&p.held)))
	}
	for i := range 60 {
		m := welcome.Message(mail{To: fmt.Sprintf("user%d@example.org", i), Kind: "welcome"})
		err = errors.Join(err, d.q.Enqueue(ctx, m, shunt.Retain(time.Hour), shunt.RefTo(&p.done),
			shunt.ID(fmt.Sprint("welcome:", i))))
	}
	if err != nil {
		d.Fatal(err)
	}
	done.Wait()
	held.Wait()
	d.until("60 are done", func() bool { return d.count("mail.welcome", shunt.StateDone) == 60 })
}

// webhooks has some groups of failures, and retries.
func (d *desk) webhooks(ctx context.Context, p *planted) {
	d.Helper()
	const c = "webhook.deliver"
	d.fail(c, 57, "POST https://hooks.example.com/v1/orders/%d: 503 Service Unavailable", true)
	d.fail(c, 21, "dial tcp 10.0.7.21:%d: connect: connection refused", true)
	d.fail(c, 4, "panic: runtime error: index out of range [%d] with length 3\n\ngoroutine 88 [running]:\n"+
		"main.render(0xc000124000)\n\t/src/hooks/render.go:118 +0x1f4\nmain.(*worker).handle(0xc00009e0c0)", true)
	p.died = d.fail(c, 1, "template order.tmpl: line %d: unexpected \"}\" in operand", true)
	p.retried = d.fail(c, 9, "POST https://hooks.example.com/v1/orders/%d: context deadline exceeded", false)
}

// fail has n messages fail, each with a number of its own for %d: they die, or are to be retried. Nothing else may be
// ready in the channel that would be taken first. It gives the last.
func (d *desk) fail(channel string, n int, why string, die bool) (last shunt.Ref) {
	d.Helper()
	ctx := context.Background()
	for i := range n {
		body := fmt.Sprintf(`{"event":"order.paid","order":%d,"amount":"49.90","currency":"EUR",`+
			`"customer":{"name":"Jürgen Groß","country":"DE"},"items":[{"sku":"A-113","n":2},{"sku":"B-7","n":1}]}`,
			90000+i)
		last = d.enqueue(channel, body, shunt.Header("Content-Type", "application/json"),
			shunt.Header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"))
	}
	for i := 0; i < n; {
		ms, err := d.q.Pull(ctx, shunt.PullOptions{Channels: []string{channel}, Max: min(n-i, 1000), Wait: patience})
		if err != nil || len(ms) == 0 {
			d.Fatal(err, len(ms))
		}
		for _, m := range ms {
			i++
			why := errors.New(strings.ReplaceAll(why, "%d", fmt.Sprint(7000+13*i)))
			if die {
				why = shunt.Reject(why)
			} else {
				why = shunt.RetryAfter(time.Hour, why)
			}
			if err := m.Fail(ctx, why); err != nil {
				d.Fatal(err)
			}
		}
	}
	return last
}

func (d *desk) enqueue(channel, payload string, opts ...shunt.Option) (r shunt.Ref) {
	d.Helper()
	err := d.q.Enqueue(context.Background(), shunt.Raw(channel, []byte(payload)), append(opts, shunt.RefTo(&r))...)
	if err != nil {
		d.Fatal(err)
	}
	return r
}
