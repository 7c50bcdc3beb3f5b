// Package shuntprom exports figures of package shunt to Prometheus.
//
//	q := &shunt.Queue{Pool: pool}
//	metrics, err := shuntprom.New(q, shuntprom.Options{})
//	if err != nil {
//		return err
//	}
//	log := shunt.LogEvents(slog.Default())
//	q.Events = func(e shunt.Event) { metrics.Event(e); log(e) } // before the first use of q
//	prometheus.MustRegister(metrics)
//	http.Handle("/metrics", promhttp.Handler())
//
// # Where figures come from
//
// There are three sources, and each has names of its own.
//
//   - Redis tells at each scrape what lies in the channels, how old it is and who takes it. These gauges are the same
//     from every process. They take one pipeline for each 1,000 channels, and one command for the names of the channels
//     unless [Options].Channels gives them.
//   - The Events of this process are counted by [Collector.Event]: shunt_outcomes_total and the like. The sum over all
//     processes is the whole. They begin at zero with the process, and take no command.
//   - The Counts that all processes add to Redis are counted on by a collector with Options.Fleet: shunt_fleet_… . It
//     is for an exporter beside programs that have no collector.
//
// A program that handles messages needs its Events alone: with Options.Local it asks Redis nothing. One process, such
// as an exporter, then leaves out Local and exports the gauges. Where every process exports them, take the max over
// instances, as the alerts and the dashboard do.
//
// # Counters
//
// Queue.Counts and Overview.Lately are windows of time, and no counters. A counter of the fleet adds each whole minute
// once, when it is over by the clock of Redis. So it moves once a minute, and is up to 70 s behind. It begins at zero
// when the exporter starts, and what happens before its first scrape is not in it. After more than an hour without an
// answered scrape only the last hour is added. A channel lacks the minutes in which it could not be read. Two exporters
// count the same: take the max over them, never the sum.
//
// Events are a lower bound where replies were lost, or where shunt_events_dropped_total moves.
//
// # Bounds
//
// At most Options.MaxChannels channels have series. Of Redis' figures these are the first by name, and
// shunt_channels_ungauged says how many have none. Events of further channels are counted under the channel "{other}",
// which is no channel's name. Labels are names of channels and words of this package: none comes from a message. A
// channel has up to 13 series of Redis' figures, 45 of Events, and 67 of the fleet.
package shuntprom
