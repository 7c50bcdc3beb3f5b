package dashboard

import (
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"regexp"
	"slices"

	"github.com/shuntmq/shunt"
)

// previewed is how many bytes of a payload a list shows.
const previewed = 120

type messagesPage struct {
	Channel  string
	State    shunt.State
	States   []stateRow
	Criteria criteria
	Find     string
	NotFound bool
	Latest   bool
	Entries  []shunt.Entry
	Looked   int
	Next     template.URL // query of the next page
	Turn     template.URL // query of the other order
	Verbs    []string
	Preview  bool
}

// messages shows the messages of one state, or finds one.
func (q *request) messages() error {
	channel, err := q.channelOf()
	if err != nil {
		return err
	}
	ctx := q.r.Context()
	p := messagesPage{Channel: channel, State: shunt.State(q.form.Get("s")), Criteria: q.criteria(),
		Find: q.form.Get("find"), Latest: q.form.Get("latest") != ""}
	if !slices.Contains(shunt.States, p.State) {
		p.State = shunt.StatePrepare
	}
	if p.Find != "" {
		ref, err := q.find(channel, p.Find)
		if err == nil {
			// http.Redirect would make the path absolute, without what http.StripPrefix has taken off.
			q.w.Header().Set("Location", "./message?ref="+url.QueryEscape(ref.String()))
			q.w.WriteHeader(http.StatusSeeOther)
			return nil
		}
		if p.NotFound = errors.Is(err, shunt.ErrNotFound); !p.NotFound {
			return err
		}
	}
	stats, err := q.q.Stats(ctx, channel)
	if err != nil {
		return err
	}
	for _, s := range shunt.States {
		p.States = append(p.States, stateRow{s, stats[s]})
	}
	o := shunt.BrowseOptions{Channel: channel, State: p.State, Limit: messagesShown, Latest: p.Latest,
		From: q.form.Get("from")}
	o.Filter = q.filter(p.Criteria)
	// What masks a payload wants all of it, which is too much for a list.
	if p.Preview = !q.Masks(); p.Preview {
		o.Payload = previewed
	}
	page, err := q.q.Browse(ctx, o)
	if err != nil {
		return err
	}
	for _, e := range page.Entries {
		p.Entries = append(p.Entries, q.masked(e))
	}
	p.Looked, p.Turn = page.Looked, p.query("", !p.Latest)
	if page.Next != "" {
		p.Next = p.query(page.Next, p.Latest)
	}
	p.Verbs = verbsFor(p.State)
	return q.show("messages", channel+" · "+q.T("state."+string(p.State)), p)
}

func (p *messagesPage) query(from string, latest bool) template.URL {
	v := p.Criteria.Query()
	v.Set("c", p.Channel)
	v.Set("s", string(p.State))
	if from != "" {
		v.Set("from", from)
	}
	if latest {
		v.Set("latest", "1")
	}
	return template.URL(v.Encode())
}

var serialForm = regexp.MustCompile(`^([0-9A-HJKMNP-TV-Z]{26}|[0-9a-f]{40})$`)

// find looks for a message by its serial, or by its ID.
func (q *request) find(channel, text string) (shunt.Ref, error) {
	ref := shunt.ByID(channel, text)
	e, err := q.q.Peek(q.r.Context(), ref)
	if errors.Is(err, shunt.ErrNotFound) && serialForm.MatchString(text) {
		e, err = q.q.Peek(q.r.Context(), shunt.BySerial(channel, text))
	}
	if err != nil {
		return ref, err
	}
	if r := e.Ref(); r.Serial != "" {
		return r, nil
	}
	return ref, nil
}

// verbsFor are what may be done to a message of a state.
func verbsFor(s shunt.State) []string {
	switch s {
	case shunt.StatePrepare, shunt.StateSuspect:
		return []string{"cancel"}
	case shunt.StateDoing, shunt.StateLeased:
		return []string{"cancel"}
	case shunt.StateDelay:
		return []string{"promote", "postpone", "cancel"}
	case shunt.StateDead:
		return []string{"retry", "delete"}
	case shunt.StateDone:
		return []string{"delete"}
	}
	return nil
}
