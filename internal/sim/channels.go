package sim

import (
	"slices"
	"strings"

	"github.com/shuntmq/shunt/internal/trial"
)

// pulls says whether somebody pulls from a channel.
func (p *Plot) pulls(channel string) bool {
	return slices.ContainsFunc(p.Crew, func(o trial.Orders) bool {
		return o.Pull > 0 && slices.Contains(o.Channels, channel)
	})
}

// channels that somebody handles, in order.
func (p *Plot) channels() (all []string) {
	for _, o := range p.Crew {
		for _, c := range o.Channels {
			if !slices.Contains(all, c) {
				all = append(all, c)
			}
		}
	}
	return all
}

// posted are the channels to which the load of posts goes.
func (p *Plot) posted() []string {
	return slices.DeleteFunc(p.channels(), func(c string) bool { return c == ticks })
}

// stays says whether a receiver handles a channel that is not of the line of one process.
func (p *Plot) stays(by, channel string) bool {
	by, _, _ = strings.Cut(by, ".")
	return slices.ContainsFunc(p.Crew, func(o trial.Orders) bool {
		return o.Name != by && o.Pull == 0 && !o.Upkeep && slices.Contains(o.Channels, channel)
	})
}
