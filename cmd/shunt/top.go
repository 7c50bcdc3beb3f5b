package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/shuntmq/shunt/cmd/shunt/internal/top"
)

func topCommands(a *app) []*cobra.Command {
	refresh := span(time.Second)
	cmd := &cobra.Command{
		Use: "top", Short: "Show all channels on a live screen", Args: cobra.NoArgs,
		Long: "Show all channels on a live screen, which names its keys: enter goes into a channel, a state and a " +
			"message, where r, d and c retry, delete and cancel after a y. It asks Redis once each --refresh.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case a.json:
				return usage("top is a screen: shunt channels --watch --json prints lines")
			case time.Duration(refresh) < 100*time.Millisecond || time.Duration(refresh) > time.Hour:
				return usage("--refresh %v: want 100ms to 1h", time.Duration(refresh))
			case !a.screen:
				return usage("top wants a terminal, for input and output: shunt channels --watch does without")
			}
			q, err := a.open()
			if err != nil {
				return err
			}
			return top.Run(cmd.Context(), q, a.in, a.out, top.Options{
				Refresh: time.Duration(refresh), By: a.whoever(), NoColor: a.getenv("NO_COLOR") != "",
			})
		},
	}
	cmd.Flags().Var(&refresh, "refresh", "the time between two looks, 100ms to 1h")
	return []*cobra.Command{cmd}
}
