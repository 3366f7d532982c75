package main

import (
	"context"
	"math"
	"sort"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

const everyS = 30

// sample is a number at a moment, in milliseconds.
type sample struct {
	at    int64
	value float64
}

func (s sample) T() int64                      { return s.at }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.value }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// memory holds the series of all scrapes.
type memory struct {
	series   map[string]*row
	families map[string]bool
}

type row struct {
	labels  labels.Labels
	samples []chunks.Sample
}

func (m *memory) names() []string { return sorted(m.families) }

func (m *memory) add(series labels.Labels, at int64, found float64) {
	key := series.String()
	kept := m.series[key]
	if kept == nil {
		kept = &row{labels: series}
		m.series[key] = kept
	}
	kept.samples = append(kept.samples, sample{at * 1000, found})
}

// store repeats each scrape until the next one of its target, or the end. What a scrape has no more is stale.
func store(scrapes []scrape, seconds int64) (*memory, error) {
	kept := &memory{map[string]*row{}, map[string]bool{"up": true}}
	byTarget := map[string][]scrape{}
	first := int64(math.MaxInt64)
	for _, each := range scrapes {
		key := labels.FromMap(each.Target).String()
		byTarget[key] = append(byTarget[key], each)
		first = min(first, each.At)
	}
	for _, found := range byTarget {
		last := map[string]labels.Labels{}
		for i, each := range found {
			end := first + seconds
			if i+1 < len(found) {
				end = found[i+1].At
			}
			now := map[string]float64{}
			all := map[string]labels.Labels{}
			add := func(series labels.Labels, number float64) {
				builder := labels.NewBuilder(series)
				for name, text := range each.Target {
					builder.Set(name, text)
				}
				whole := builder.Labels()
				now[whole.String()], all[whole.String()] = number, whole
				kept.families[whole.Get(model.MetricNameLabel)] = true
			}
			up := 0.0
			if each.Text != nil {
				up = 1
				if err := parsed(*each.Text, add, func(name string) { kept.families[name] = true }); err != nil {
					return nil, err
				}
			}
			add(labels.FromStrings(model.MetricNameLabel, "up"), up)
			for key, series := range last {
				if _, still := all[key]; !still {
					kept.add(series, each.At, math.Float64frombits(value.StaleNaN))
				}
			}
			for at := each.At; at < end; at += everyS {
				for key, series := range all {
					kept.add(series, at, now[key])
				}
			}
			last = all
		}
	}
	return kept, nil
}

// Querier, of storage.Queryable.
func (m *memory) Querier(from, to int64) (storage.Querier, error) { return &querier{m, from, to}, nil }

type querier struct {
	of       *memory
	from, to int64
}

func (q *querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	found := &set{at: -1}
	for _, each := range q.of.series {
		if !matches(each.labels, matchers) {
			continue
		}
		var inside []chunks.Sample
		for _, one := range each.samples {
			if q.from <= one.T() && one.T() <= q.to {
				inside = append(inside, one)
			}
		}
		found.all = append(found.all, storage.NewListSeries(each.labels, inside))
	}
	sort.Slice(found.all, func(i, j int) bool {
		return labels.Compare(found.all[i].Labels(), found.all[j].Labels()) < 0
	})
	return found
}

func matches(series labels.Labels, matchers []*labels.Matcher) bool {
	for _, each := range matchers {
		if !each.Matches(series.Get(each.Name)) {
			return false
		}
	}
	return true
}

func (q *querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (q *querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (q *querier) Close() error { return nil }

// set is a storage.SeriesSet.
type set struct {
	all []storage.Series
	at  int
}

func (s *set) Next() bool                        { s.at++; return s.at < len(s.all) }
func (s *set) At() storage.Series                { return s.all[s.at] }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }
