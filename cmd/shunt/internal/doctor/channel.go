package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shuntmq/shunt"
)

const (
	mostEntries = 1000             // of a registry that are read
	unswept     = 30 * time.Second // after the time of a look at a dead receiver
	forgetLate  = time.Minute
)

// doubt is a finding that may only be something on its way: it counts if a second look has the same.
type doubt struct {
	Finding
	evidence []string // what was seen: where some is the same in both looks, that much is wrong
	// text says it of so many.
	text func(n int) string
	// each: Number is how much of evidence is the same; else all must be.
	each bool
}

// look2 looks twice at each channel, and finds what is the same. The first look leaves half of the time that is left.
func (e *examination) look2() {
	names := slices.DeleteFunc(e.names(), func(name string) bool {
		c := e.seen[name]
		_, counts := c.types["counts"]
		return len(c.doing)+len(c.leases) == 0 && (len(c.types) == 0 || len(c.types) == 1 && counts) && e.scanned
	})
	end, _ := e.ctx.Deadline()
	half := time.Now().Add(time.Until(end) / 2)
	first := make(map[string][]doubt)
	for i, name := range names {
		if time.Now().After(half) || e.ctx.Err() != nil {
			e.limit("time was over: %d of %d channels were not looked into", len(names)-i, len(names))
			break
		}
		if ds := e.look(e.seen[name]); len(ds) > 0 {
			first[name] = ds
		}
	}
	if len(first) == 0 {
		return
	}
	e.rest(e.o.Apart)
	for _, name := range names {
		if first[name] == nil || e.over("no second look at some of %d channels, so what is wrong there is not said",
			len(first)) {
			continue
		}
		for _, d := range same(first[name], e.look(e.seen[name])) {
			e.found(d.Severity, d.Kind, d.Finding, "%s", d.text(int(d.Number)))
		}
	}
}

// same is what two looks have both.
func same(first, second []doubt) (both []doubt) {
	for _, d := range second {
		i := slices.IndexFunc(first, func(o doubt) bool { return o.Kind == d.Kind && o.Key == d.Key })
		if i < 0 {
			continue
		}
		was := make(map[string]bool)
		for _, text := range first[i].evidence {
			was[text] = true
		}
		still := slices.DeleteFunc(slices.Clone(d.evidence), func(text string) bool { return !was[text] })
		if len(still) == 0 || !d.each && len(still) < len(d.evidence) {
			continue
		}
		if d.each {
			d.evidence, d.Number = still, float64(len(still))
		}
		both = append(both, d)
	}
	return both
}

// state is what one look at a channel has read, in one pipeline and then by the lists' names.
type state struct {
	now       time.Time
	receivers []scored
	dead      []scored
	leases    map[string]float64
	keeper    []string
	due       []scored
	held      map[string]int // messages by the incarnation
}

func (e *examination) read(c *channel) (s state, ok bool) {
	all, err := e.ask(command{"TIME"}, command{"ZRANGE", c.key("receivers"), 0, mostEntries - 1, "WITHSCORES"},
		command{"ZRANGE", c.key("receivers.dead"), 0, mostEntries - 1, "WITHSCORES"},
		command{"HMGET", c.key("keeper"), "name", "until"},
		command{"ZRANGE", c.key("delay"), 0, 0, "WITHSCORES"})
	if err != nil {
		e.limit("channel %s: %v", c.name, err)
		return s, false
	}
	s = state{now: all[0].time(), receivers: all[1].scored(), dead: all[2].scored(), keeper: all[3].strings(),
		due: all[4].scored(), leases: make(map[string]float64), held: make(map[string]int)}
	for from := 0; from <= mostLists; from += mostEntries { // ends move: one may be missed, and is seen the next time
		page := e.one("ZRANGE", c.key("leased"), from, from+mostEntries-1, "WITHSCORES").scored()
		for _, l := range page {
			s.leases[l.member] = l.score
		}
		if len(page) < mostEntries {
			break
		}
	}
	if len(s.receivers) == mostEntries || len(s.dead) == mostEntries || len(s.leases) > mostLists {
		e.limit("channel %s: of its registry %d entries were read", c.name, mostEntries)
	}
	var cmds []command
	var whose []string
	for _, r := range slices.Concat(s.receivers, s.dead) {
		name, _, _ := strings.Cut(r.member, " ")
		workers, _ := parseIncarnation(name)
		for w := range workers {
			if len(cmds) < mostLists {
				cmds = append(cmds, command{"LLEN", fmt.Sprintf("%s.%s.%d", c.key("doing"), name, w)})
				whose = append(whose, name)
			}
		}
	}
	lens, err := e.ask(cmds...)
	for i, r := range lens {
		s.held[whose[i]] += r.int()
	}
	return s, err == nil && !s.now.IsZero()
}

// look looks at one channel.
func (e *examination) look(c *channel) (ds []doubt) {
	s, ok := e.read(c)
	if !ok {
		return nil
	}
	add := func(sev shunt.Severity, kind Kind, f Finding, evidence []string, text string, args ...any) {
		f.Severity, f.Kind, f.Channel, f.Number = sev, kind, c.name, max(f.Number, float64(len(evidence)))
		said := fmt.Sprintf(text, args...)
		ds = append(ds, doubt{Finding: f, evidence: evidence, text: func(int) string { return said }})
	}
	ms := float64(s.now.UnixMilli())
	e.lookRegistry(c, &s, add)
	e.lookOrphans(c, &s, &ds)

	waiting := len(s.due) > 0
	alive := slices.ContainsFunc(s.receivers, func(r scored) bool { return r.score > ms })
	var until float64
	if len(s.keeper) == 2 {
		until = number(map[string]string{"": s.keeper[1]}, "")
	}
	if waiting && !alive && len(s.leases) == 0 && until < ms &&
		s.due[0].score > ms-float64(overdueAfter.Milliseconds()) {
		in := time.Duration(s.due[0].score-ms) * time.Millisecond
		add(shunt.Warning, NoKeeper, Finding{Number: in.Seconds(), Key: c.key("delay"),
			Do: "start a receiver of the channel, or a process with Upkeep"}, []string{"no keeper"},
			"messages are delayed, the first for %v, and nobody keeps their time", in.Round(time.Second))
	}
	if over := e.one("ZCOUNT", c.key("kept"), "(0", ms-float64(forgetLate.Milliseconds())).int(); over > 0 {
		add(shunt.Notice, Unforgotten, Finding{Number: float64(over), Fix: Safe, Key: c.key("kept"),
			Do: "start a receiver of the channel, or a process with Upkeep"}, []string{"over"},
			"%s over for more than a minute, and kept", many(over, "outcome or ID is", "outcomes and IDs are"))
	}
	e.lookMessages(c, &s, alive, &ds)
	return ds
}

// overdueAfter is from when on Queue.Health speaks of a delayed message that is due.
const overdueAfter = 10 * time.Second

// lookRegistry looks at the entries of receivers.
func (e *examination) lookRegistry(c *channel, s *state,
	add func(shunt.Severity, Kind, Finding, []string, string, ...any)) {
	ms := float64(s.now.UnixMilli())
	var late, bad []string
	var held int
	var longest float64
	for _, r := range slices.Concat(s.receivers, s.dead) {
		name, _, _ := strings.Cut(r.member, " ")
		if _, is := parseIncarnation(name); !is {
			bad = append(bad, r.member)
			continue
		}
		if r.score < ms-float64(unswept.Milliseconds()) {
			late = append(late, name)
			held += s.held[name]
			longest = max(longest, ms-r.score)
		}
	}
	for name := range s.leases {
		if !lease.MatchString(name) {
			bad = append(bad, name)
		}
	}
	if len(bad) > 0 {
		add(shunt.Warning, Registry, Finding{Key: c.key("receivers"), Number: float64(len(bad)),
			Do: fmt.Sprintf("ZREM '%s' %q, or that of %s or %s", c.key("receivers"), bad[0], c.key("receivers.dead"),
				c.key("leased"))}, bad, "%s of receivers or leases not to be read, such as %q", many(len(bad),
			"entry", "entries"),
			bad[0])
	}
	if len(late) == 0 {
		return
	}
	severity := shunt.Notice
	if held > 0 {
		severity = shunt.Critical
	}
	add(severity, DeadUnswept, Finding{Number: float64(held), Key: c.key("receivers.dead"), Fix: Safe,
		Do: "start a receiver of the channel, or a process with Upkeep"}, late,
		"%s in lists of %s that nobody has looked after for %v", many(held, "message"), many(len(late),
			"dead receiver"),
		(time.Duration(longest) * time.Millisecond).Round(time.Second))
}

// lookOrphans looks at the lists of workers and leases that no registry names.
func (e *examination) lookOrphans(c *channel, s *state, ds *[]doubt) {
	known := make(map[string]bool)
	for _, r := range slices.Concat(s.receivers, s.dead) {
		name, _, _ := strings.Cut(r.member, " ")
		known[name] = true
	}
	complete := len(s.receivers) < mostEntries && len(s.dead) < mostEntries && len(s.leases) <= mostLists
	orphans := func(kind Kind, lists map[string]string, is func(string) bool, what, do string) {
		var names []string
		for name, holder := range lists {
			if !is(holder) {
				names = append(names, name)
			}
		}
		if len(names) == 0 || !complete {
			return
		}
		slices.Sort(names)
		cmds := make([]command, len(names))
		for i, name := range names {
			cmds[i] = command{"LLEN", name}
		}
		lens, err := e.ask(cmds...)
		if err != nil {
			return
		}
		var there []string
		messages := 0
		for i, r := range lens {
			if n := r.int(); n > 0 {
				there, messages = append(there, names[i]), messages+n
			}
		}
		if len(there) == 0 {
			return
		}
		fix := Safe
		for _, name := range there {
			k := parseKey(name)
			form := incarnation
			if kind == LeaseOfNobody {
				form = lease
			}
			if !form.MatchString(k.holder) {
				fix = ByHand
			}
		}
		said := fmt.Sprintf("%s in %s of %s, such as %s", many(messages, "message"), many(len(there), "list"), what,
			there[0])
		*ds = append(*ds, doubt{Finding: Finding{Severity: shunt.Critical, Kind: kind, Channel: c.name, Key: there[0],
			Number: float64(messages), Fix: fix, Do: fmt.Sprintf(do, there[0])}, evidence: there,
			text: func(int) string { return said }})
	}
	orphans(DoingOfNobody, c.doing, func(h string) bool { return known[h] }, "workers that no receiver has",
		"shunt doctor --fix, or RPOPLPUSH '%s' '"+c.key("prepare")+"' until it is empty")
	orphans(LeaseOfNobody, c.leases, func(h string) bool { _, is := s.leases[h]; return is },
		"leases that are not listed",
		"shunt doctor --fix, or RPOPLPUSH '%s' '"+c.key("prepare")+"' until it is empty")
}
