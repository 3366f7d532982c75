package main

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
)

// evaluate runs all rules each minute, and counts how often each alert began to fire.
func evaluate(language parser.Parser, groups *rulefmt.RuleGroups, stored *memory, one asked) ([]fired, error) {
	first := int64(math.MaxInt64)
	for _, each := range one.Scrapes {
		first = min(first, each.At)
	}
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 50_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, Parser: language,
	})
	query := rules.EngineQueryFunc(engine, stored)
	found := []fired{}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			expression, err := language.ParseExpr(rule.Expr)
			if err != nil {
				return nil, err
			}
			alerting := rules.NewAlertingRule(
				rule.Alert, expression, time.Duration(rule.For), time.Duration(rule.KeepFiringFor),
				labels.FromMap(rule.Labels), labels.FromMap(rule.Annotations), labels.EmptyLabels(), "", true, slog.Default(),
			)
			times, series, before := map[string]int{}, map[string]labels.Labels{}, map[string]bool{}
			for at := first; at < first+one.Seconds; at += 60 {
				if _, err := alerting.Eval(context.Background(), 0, time.Unix(at, 0), query, nil, 0); err != nil {
					return nil, err
				}
				now := map[string]bool{}
				for _, active := range alerting.ActiveAlerts() {
					if active.State != rules.StateFiring {
						continue
					}
					key := active.Labels.String()
					now[key], series[key] = true, active.Labels
					if !before[key] {
						times[key]++
					}
				}
				before = now
			}
			for key, count := range times {
				found = append(found, fired{rule.Alert, series[key].Map(), count})
			}
		}
	}
	return found, nil
}
