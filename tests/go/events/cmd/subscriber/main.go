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

func post(path, body string) (found struct {
	Consumer, APIPrefix, InboxPrefix, CA, Control, Token string
	Servers                                              []string
	Streams                                              []struct{ Stream string }
}) {
	url := os.Getenv("SERVER") + "/services/events/clusters/" + os.Getenv("WORKSPACE") + path
	request := must(http.NewRequest("POST", url, strings.NewReader(body)))
	request.Header.Set("Authorization", "Bearer "+os.Getenv("TOKEN"))
	reply := must(http.DefaultClient.Do(request))
	defer reply.Body.Close()
	if reply.StatusCode >= 300 {
		panic(path + ": " + reply.Status)
	}
	must(0, json.NewDecoder(reply.Body).Decode(&found))
	return found
}

func show(message jetstream.Msg) {
	field := message.Headers().Get
	fmt.Println(field("Atoll-Operation"), field("ce-subject"), field("Atoll-Revision"))
	message.Ack()
}

func follow() {
	defer func() { log.Println("again:", recover()) }()
	found := post("/subscriptions", `{"name": "copy-go", "resources": ["configmaps"]}`)
	ended, end := context.WithCancelCause(context.Background())
	closed := func(*nats.Conn) { end(nats.ErrConnectionClosed) }
	options := []nats.Option{nats.CustomInboxPrefix(found.InboxPrefix), nats.NoReconnect(), nats.ClosedHandler(closed)}
	if authority := x509.NewCertPool(); authority.AppendCertsFromPEM([]byte(found.CA)) {
		options = append(options, nats.Secure(&tls.Config{RootCAs: authority}))
	}
	connection := must(nats.Connect(strings.Join(found.Servers, ","), append(options, nats.Token(post("/token", "{}").Token))...))
	defer connection.Close()
	must(connection.Subscribe(found.Control, func(told *nats.Msg) { end(fmt.Errorf("%s", told.Data)) }))
	failed := jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { end(err) })
	stream := must(jetstream.NewWithAPIPrefix(connection, found.APIPrefix))
	for _, part := range found.Streams {
		must(must(stream.Consumer(ended, part.Stream, found.Consumer)).Consume(show, jetstream.PullMaxMessages(100), failed))
	}
	<-ended.Done()
	panic(context.Cause(ended))
}

func main() {
	for ; ; time.Sleep(time.Second) {
		follow()
	}
}
