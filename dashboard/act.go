package dashboard

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/shuntmq/shunt"
)

// maxRefs bounds the messages that one form may name.
const maxRefs = 200

// singles are what is done to one message; of those that are in danger a page asks first.
var singles = map[string]struct {
	danger bool
	do     func(*request, shunt.Ref) error
}{
	"retry":   {false, func(q *request, r shunt.Ref) error { return q.q.Retry(q.r.Context(), r) }},
	"promote": {false, func(q *request, r shunt.Ref) error { return q.q.Promote(q.r.Context(), r) }},
	"delete":  {true, func(q *request, r shunt.Ref) error { return q.q.Delete(q.r.Context(), r) }},
	"cancel": {true, func(q *request, r shunt.Ref) error {
		_, err := q.q.Cancel(q.r.Context(), r)
		return err
	}},
	"postpone": {false, func(q *request, r shunt.Ref) error {
		d, err := time.ParseDuration(strings.TrimSpace(q.form.Get("by")))
		if err != nil || d < 0 || d > 100*365*24*time.Hour {
			return refuse(http.StatusBadRequest, "dashboard: postpone by %.40q: want a time such as 90s, 15m or 24h",
				q.form.Get("by"))
		}
		return q.q.Postpone(q.r.Context(), r, shunt.In(d))
	}},
}

// bulkStates are the states that each bulk action may be for.
var bulkStates = map[string][]shunt.State{
	"retry-all": {shunt.StateDead}, "delete-all": {shunt.StateDead}, "promote-all": {shunt.StateDelay},
	"cancel-all": {shunt.StatePrepare, shunt.StateSuspect, shunt.StateDelay}, "purge": {shunt.StateDone},
}

// recurrences are what is done to a recurring message.
var recurrences = map[string]func(q *request, channel, name string) error{
	"pause":  func(q *request, c, name string) error { return q.timetable().Pause(q.r.Context(), c, name) },
	"resume": func(q *request, c, name string) error { return q.timetable().Resume(q.r.Context(), c, name) },
	"run":    func(q *request, c, name string) error { return q.timetable().Enqueue(q.r.Context(), c, name) },
}

// act does what a form asks for.
func (q *request) act() error {
	if !q.Operator() {
		return refuse(http.StatusForbidden, "dashboard: a viewer changes nothing: ask an operator")
	}
	verb := q.form.Get("verb")
	if _, is := singles[verb]; is {
		return q.actOnMessages(verb)
	}
	channel, err := q.channelOf()
	if err != nil {
		return err
	}
	if do := recurrences[verb]; do != nil {
		name := q.form.Get("name")
		n, err := 1, do(q, channel, name)
		if err != nil {
			n = 0
		}
		return q.audited(verb, channel, cut(4000, name), n, err)
	}
	switch {
	case bulkStates[verb] != nil:
		return q.actOnAll(verb, channel)
	case verb == "stop-job":
		if !q.bulks.cancel(channel) {
			return refuse(http.StatusConflict, "dashboard: no bulk action runs on this channel")
		}
		return q.audited(verb, channel, "", 0, nil)
	case verb == "resume-job":
		return q.resume(channel)
	}
	return refuse(http.StatusBadRequest, "dashboard: there is no action %.40q", verb)
}

// audited notes what was done, and goes back to the page that it came from.
func (q *request) audited(verb, channel, detail string, n int, err error) error {
	e := shunt.AuditEntry{By: q.User.Name, Verb: verb, Channel: channel, Detail: detail, Count: n}
	if err != nil {
		e.Error = cut(4000, err.Error())
	}
	if bad := q.audit(q.r.Context(), e); bad != nil {
		q.o.Log.Error("dashboard: an action is not in the audit", "action", e, "error", bad)
		err = errors.Join(err, fmt.Errorf("dashboard: what was done is not in the audit: %w", bad))
	}
	if err != nil {
		return err
	}
	q.back(verb, n)
	return nil
}

// back goes to the page that the form names, with what was done.
func (q *request) back(verb string, n int) {
	name, query, _ := strings.Cut(q.form.Get("back"), "?")
	v, err := url.ParseQuery(query)
	if _, is := gets[name]; !is || err != nil || name == "live" || name == "payload" {
		name, v = "", url.Values{}
	}
	v.Set("did", verb)
	v.Set("n", fmt.Sprint(n))
	q.w.Header().Set("Location", "./"+name+"?"+v.Encode())
	q.w.WriteHeader(http.StatusSeeOther)
}

// Here is this page as a form names it to come back to.
func (v view) Here() string {
	query := v.r.URL.Query()
	for _, key := range []string{"did", "n", "lang"} {
		query.Del(key)
	}
	return v.r.URL.Path[strings.LastIndexByte(v.r.URL.Path, '/')+1:] + "?" + query.Encode()
}

type confirmPage struct {
	Question string
	Warning  string
	Verb     string
	Pairs    [][2]string // the form, to be sent again
	Back     string
	Details  []string
}

// confirm asks before a form is sent again with yes.
func (q *request) confirm(verb, question string, count int, exact bool, details []string) error {
	p := confirmPage{Question: question, Verb: verb, Details: details, Back: q.form.Get("back")}
	name, _, _ := strings.Cut(p.Back, "?")
	if _, is := gets[name]; !is {
		p.Back = "?"
	}
	p.Back = "./" + p.Back
	if verb != "retry-all" && verb != "promote-all" {
		p.Warning = q.T("confirm.forgood")
	}
	for key, values := range q.form {
		if key == "token" || key == "yes" || key == "count" || key == "exact" {
			continue
		}
		for _, v := range values {
			p.Pairs = append(p.Pairs, [2]string{key, v})
		}
	}
	slices.SortStableFunc(p.Pairs, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	p.Pairs = append(p.Pairs, [2]string{"count", fmt.Sprint(count)})
	if exact {
		p.Pairs = append(p.Pairs, [2]string{"exact", "1"})
	}
	return q.show("confirm", q.T("confirm"), p)
}

// actOnMessages does a verb to each of the messages that the form names.
func (q *request) actOnMessages(verb string) error {
	texts := q.form["ref"]
	if len(texts) == 0 || len(texts) > maxRefs {
		return refuse(http.StatusBadRequest, "dashboard: choose 1 to %d messages", maxRefs)
	}
	refs := make([]shunt.Ref, len(texts))
	for i, text := range texts {
		var err error
		if refs[i], err = refOf(text); err != nil {
			return err
		}
	}
	single := singles[verb]
	if single.danger && q.form.Get("yes") == "" {
		question := q.T("confirm."+verb, q.Num(len(refs)))
		if len(refs) == 1 {
			question = q.T("confirm." + verb + ".one")
		}
		return q.confirm(verb, question, len(refs), true, texts)
	}
	n, errs := 0, []error(nil)
	for i, ref := range refs {
		if err := single.do(q, ref); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", cut(200, texts[i]), err))
			continue
		}
		n++
	}
	return q.audited(verb, refs[0].Channel, cut(4000, strings.Join(texts, " ")), n, errors.Join(errs...))
}

// actOnAll confirms and begins a bulk action.
func (q *request) actOnAll(verb, channel string) error {
	c, state := q.criteria(), bulkStates[verb][0]
	if s := shunt.State(q.form.Get("s")); s != "" || len(bulkStates[verb]) > 1 {
		if state = s; !slices.Contains(bulkStates[verb], s) {
			return refuse(http.StatusBadRequest, "dashboard: %s is not for the state %.20q", verb, s)
		}
	}
	if verb == "purge" && c.Any() {
		return refuse(http.StatusBadRequest, "dashboard: purge is for all messages of a state")
	}
	if q.form.Get("yes") == "" {
		n, exact, err := q.count(q.r.Context(), channel, state, c)
		if err != nil {
			return err
		}
		key := "confirm." + verb
		question := q.T(key, q.Num(n), channel, q.T("state."+string(state)))
		if !exact {
			question = q.T("confirm.atleast", q.Num(countLooks)) + " " + question
		}
		var details []string
		for _, pair := range c.Pairs() {
			details = append(details, pair[0]+": "+pair[1])
		}
		return q.confirm(verb, question, n, exact, details)
	}
	j := job{Verb: verb, Channel: channel, State: state, Criteria: c, By: q.User.Name,
		Count: max(0, atoi(q.form.Get("count"))), Exact: q.form.Get("exact") != "" && verb != "purge"}
	// What cannot be noted is not begun: a process that is killed meanwhile notes nothing at the end.
	note := shunt.AuditEntry{By: j.By, Verb: verb, Channel: channel,
		Detail: cut(4000, fmt.Sprintf("begun for %d of %s: %s", j.Count, state, c))}
	if err := q.audit(q.r.Context(), note); err != nil {
		return err
	}
	if err := q.bulks.begin(j, q.filter(c)); err != nil {
		return q.audited(verb, channel, "", 0, err)
	}
	q.back(verb, j.Count)
	return nil
}

// resume goes on with a bulk action that was stopped or has failed.
func (q *request) resume(channel string) error {
	j := q.bulks.of(channel)
	if j == nil || !j.Resumable() {
		return refuse(http.StatusConflict, "dashboard: there is no bulk action of this channel to go on with")
	}
	left := max(0, j.Count-j.Changed-j.Refused)
	if q.form.Get("yes") == "" {
		question := q.T("confirm."+j.Verb, q.Num(left), channel, q.T("state."+string(j.State)))
		if !j.Exact && j.Verb != "purge" {
			question = q.T("confirm.atleast", q.Num(countLooks)) + " " + question
		}
		return q.confirm("resume-job", question, left, true, []string{j.Criteria.String()})
	}
	note := shunt.AuditEntry{By: q.User.Name, Verb: "resume-job", Channel: channel,
		Detail: cut(4000, j.Verb+": "+j.Criteria.String())}
	if err := q.audit(q.r.Context(), note); err != nil {
		return err
	}
	j.By = q.User.Name
	if err := q.bulks.begin(*j, q.filter(j.Criteria)); err != nil {
		return q.audited("resume-job", channel, "", 0, err)
	}
	q.back("resume-job", left)
	return nil
}
