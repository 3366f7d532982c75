// Command helmtemplate renders charts with Helm 3 and Helm 4 as libraries, without a server, as `helm template` does.
//
// Each line of standard input is a JSON document that says what to render, and is answered by a line: the manifests,
// hooks included, or Helm's error.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
)

// asked is one rendering: the chart's folder, and what `helm template` takes as flags.
type asked struct {
	Helm       int            `json:"helm"`
	Chart      string         `json:"chart"`
	Values     map[string]any `json:"values"`
	Kubernetes string         `json:"kubernetes"`
	Release    string         `json:"release"`
	Namespace  string         `json:"namespace"`
}

type answer struct {
	Manifests []string `json:"manifests"`
	Error     string   `json:"error"`
}

func main() {
	log.SetFlags(0)
	lines, told := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var one asked
		if err := lines.Decode(&one); err == io.EOF {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		var found answer
		manifests, err := render(one)
		if err != nil {
			found.Error = err.Error()
		} else {
			found.Manifests = manifests
		}
		if err := told.Encode(found); err != nil {
			log.Fatal(err)
		}
	}
}

func render(one asked) ([]string, error) {
	switch one.Helm {
	case 3:
		return helm3(one)
	case 4:
		return helm4(one)
	}
	return nil, fmt.Errorf("there is no Helm %d", one.Helm)
}
