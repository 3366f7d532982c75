// Command oracle answers questions about Kubernetes' own behaviour with Kubernetes' own code.
//
// It reads one JSON case a line from standard input and writes one JSON answer a line to standard output, in the same
// order. A case names its question in "op"; what else it holds stands beside the answer's type. A case that cannot be
// answered, a panic upstream included, gives {"error": "..."}; the process goes on with the next.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log"
	"os"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/klog/v2"
)

// object is JSON as Kubernetes decodes it: whole numbers are int64, all others float64.
type object = map[string]any

// answers maps the name of a question to what answers it.
var answers = map[string]func(line []byte) (any, error){
	"fields":     ask(fields),
	"typeschema": ask(typeSchema),
	"strategic":  ask(strategic),
	"patchmeta":  ask(patchMeta),
	"structural": ask(structural),
	"definition": ask(definition),
	"rules":      ask(rules),
	"expression": ask(expression),
	"policy":     ask(policy),
	"mutation":   ask(mutation),
}

// ask decodes the case of a question. Open values in it are json.RawMessage, which the question decodes by `decode`.
func ask[C any](question func(C) (any, error)) func([]byte) (any, error) {
	return func(line []byte) (any, error) {
		var asked C
		if err := json.Unmarshal(line, &asked); err != nil {
			return nil, err
		}
		return question(asked)
	}
}

// decode reads open JSON, as every reader of objects in an API server does.
func decode[V any](raw json.RawMessage) (V, error) {
	var value V
	err := utiljson.Unmarshal(raw, &value)
	return value, err
}

// failure is the answer to a case that upstream refuses.
type failure struct {
	Error string `json:"error"`
}

func main() {
	// Upstream logs what it answers with as an error anyway.
	klog.LogToStderr(false)
	klog.SetOutput(os.Stderr)
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			break
		}
		encoder := json.NewEncoder(out)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(answer(line)); err != nil {
			log.Fatal(err)
		}
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				log.Fatal(err)
			}
		}
	}
	_ = out.Flush()
}

func answer(line []byte) (given any) {
	defer func() {
		if caught := recover(); caught != nil {
			given = failure{fmt.Sprintf("panic: %v", caught)}
		}
	}()
	var asked struct {
		Op string `json:"op"`
	}
	if err := json.Unmarshal(line, &asked); err != nil {
		return failure{err.Error()}
	}
	question, known := answers[asked.Op]
	if !known {
		return failure{"no such op: " + asked.Op}
	}
	found, err := question(line)
	if err != nil {
		return failure{err.Error()}
	}
	return found
}
