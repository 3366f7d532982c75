// Command prometheus answers questions about metrics and alerts with Prometheus' own parsers and rule engine.
//
// Standard input is a JSON document: a file of rules, further expressions, and what was scraped when. The answer names
// the metrics that are there and those that rules and expressions ask for, and each alert that fired.
package main

import (
	"encoding/json"
	"errors"
	"io"
	"log"
	"log/slog"
	"os"
	"sort"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql/parser"
)

// asked is the question. A scrape is repeated every 30 seconds until the next one of its target; evaluation begins with
// the first and goes on for so many seconds.
type asked struct {
	Rules       string   `json:"rules"`
	Expressions []string `json:"expressions"`
	Scrapes     []scrape `json:"scrapes"`
	Seconds     int64    `json:"seconds"`
}

// scrape is what a target answered; no text: nothing.
type scrape struct {
	At     int64             `json:"at"`
	Target map[string]string `json:"target"`
	Text   *string           `json:"text"`
}

// fired is an alert with its labels, and how often it went from not firing to firing.
type fired struct {
	Alert  string            `json:"alert"`
	Labels map[string]string `json:"labels"`
	Times  int               `json:"times"`
}

type answer struct {
	Metrics []string `json:"metrics"`
	Wanted  []string `json:"wanted"`
	Alerts  []string `json:"alerts"`
	Fired   []fired  `json:"fired"`
}

func main() {
	log.SetFlags(0)
	var one asked
	if err := json.NewDecoder(os.Stdin).Decode(&one); err != nil {
		log.Fatal(err)
	}
	found, err := answered(one)
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		log.Fatal(err)
	}
}

func answered(one asked) (answer, error) {
	var found answer
	language := parser.NewParser(parser.Options{})
	groups, errs := rulefmt.Parse([]byte(one.Rules), false, model.UTF8Validation, language, slog.Default())
	if len(errs) > 0 {
		return found, errors.Join(errs...)
	}
	expressions := one.Expressions
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			found.Alerts = append(found.Alerts, rule.Alert)
			expressions = append(expressions, rule.Expr)
		}
	}
	wanted := map[string]bool{}
	for _, text := range expressions {
		expression, err := language.ParseExpr(text)
		if err != nil {
			return found, err
		}
		for _, matchers := range parser.ExtractSelectors(expression) {
			for _, each := range matchers {
				if each.Name == model.MetricNameLabel {
					wanted[each.Value] = true
				}
			}
		}
	}
	found.Wanted = sorted(wanted)
	stored, err := store(one.Scrapes, one.Seconds)
	if err != nil {
		return found, err
	}
	found.Metrics = stored.names()
	found.Fired, err = evaluate(language, groups, stored, one)
	return found, err
}

func sorted(names map[string]bool) []string {
	found := []string{}
	for each := range names {
		found = append(found, each)
	}
	sort.Strings(found)
	return found
}

// parsed calls what is given with each series of an exposition, and with the names of families without any.
func parsed(text string, series func(labels.Labels, float64), family func(string)) error {
	reader := textparse.NewPromParser([]byte(text), labels.NewSymbolTable(), false)
	for {
		entry, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch entry {
		case textparse.EntrySeries:
			_, _, value := reader.Series()
			var found labels.Labels
			reader.Labels(&found)
			series(found, value)
		case textparse.EntryType:
			name, kind := reader.Type()
			family(string(name))
			if kind == model.MetricTypeHistogram {
				family(string(name) + "_bucket")
			}
		}
	}
}
