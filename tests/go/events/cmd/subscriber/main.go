// Prints the changes of ConfigMaps in a workspace, with a plain NATS client. SSL_CERT_FILE names the server's authority.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func post(path, body string, answer any) {
	url := os.Getenv("SERVER") + "/services/events/clusters/" + os.Getenv("WORKSPACE") + path
	request := must(http.NewRequest("POST", url, strings.NewReader(body)))
	request.Header.Set("Authorization", "Bearer "+os.Getenv("TOKEN"))
	reply := must(http.DefaultClient.Do(request))
	defer reply.Body.Close()
	if reply.StatusCode >= 300 {
		panic(path + ": " + reply.Status)
	}
	must(answer, json.NewDecoder(reply.Body).Decode(answer))
}

func follow() {
	defer func() { log.Println("again:", recover()) }()
	var found struct {
		Consumer, APIPrefix, InboxPrefix, CA string
		Servers                              []string
		Streams                              []struct{ Stream string }
	}
	var token struct{ Token string }
	post("/subscriptions", `{"name": "copy-go", "resources": ["configmaps"]}`, &found)
	post("/token", "{}", &token)
	options := []nats.Option{nats.Token(token.Token), nats.CustomInboxPrefix(found.InboxPrefix), nats.NoReconnect()}
	if authority := x509.NewCertPool(); authority.AppendCertsFromPEM([]byte(found.CA)) {
		options = append(options, nats.Secure(&tls.Config{RootCAs: authority}))
	}
	connection := must(nats.Connect(strings.Join(found.Servers, ","), options...))
	defer connection.Close()
	stream := must(jetstream.NewWithAPIPrefix(connection, found.APIPrefix))
	consumer := must(stream.Consumer(context.Background(), found.Streams[0].Stream, found.Consumer))
	messages := must(consumer.Messages(jetstream.PullMaxMessages(100)))
	for {
		message := must(messages.Next())
		headers := message.Headers()
		fmt.Println(headers.Get("Atoll-Operation"), headers.Get("ce-subject"), headers.Get("Atoll-Revision"))
		message.Ack()
	}
}

func main() {
	for {
		follow()
		time.Sleep(time.Second)
	}
}
