// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/api"
	"github.com/viplab/viplab/lab/cluster/store"
)

// object is a JSON object.
type object = map[string]any

// side is one of the two APIs.
type side struct {
	name, url, token string
	client           *http.Client
	stop             func()
}

// request is what both sides get.
type request struct {
	method, path string
	contentType  string // empty means JSON
	body         any    // an object, or a string to send as it is
}

// answer is what a side says. The body is nil if it is not a JSON object.
type answer struct {
	code int
	body object
}

// startLab serves an empty store, with the ranges of a Kubernetes cluster of two families.
func startLab(ctx context.Context) (*side, error) {
	state := api.New(store.New(store.Config{Stack: lab.Dual}))
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: state}
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(l) }) // returns when it is closed
	return &side{name: "viplab", url: "http://" + l.Addr().String(), token: state.Token(), client: http.DefaultClient,
		stop: func() {
			_ = errors.Join(state.Close(), server.Close()) // nothing is lost with them
			running.Wait()
		}}, nil
}

// insecure is for the certificate that kube-apiserver issues to itself.
func insecure() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
}

func (s *side) send(ctx context.Context, r request) (*http.Response, error) {
	var body io.Reader
	switch b := r.body.(type) {
	case nil:
	case string:
		body = bytes.NewBufferString(b)
	default:
		data, err := json.Marshal(b)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, s.url+r.path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	if body != nil {
		kind := r.contentType
		if kind == "" {
			kind = "application/json"
		}
		req.Header.Set("Content-Type", kind)
	}
	return s.client.Do(req)
}

// do sends a request and returns the answer.
func (s *side) do(ctx context.Context, r request) (answer, error) {
	resp, err := s.send(ctx, r)
	if err != nil {
		return answer{}, fmt.Errorf("%s: %w", s.name, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, fmt.Errorf("%s: %s %s: %w", s.name, r.method, r.path, err)
	}
	out := answer{code: resp.StatusCode}
	if json.Unmarshal(data, &out.body) != nil {
		out.body = object{"text": string(data)}
	}
	return out, nil
}

// watch returns the events of a collection from now on, until the context ends.
func (s *side) watch(ctx context.Context, path string) (*events, error) {
	now, err := s.do(ctx, request{method: http.MethodGet, path: path})
	if err != nil {
		return nil, err
	}
	version, _ := dig(now.body, "metadata", "resourceVersion").(string)
	resp, err := s.send(ctx, request{method: http.MethodGet, path: path + "?watch=1&resourceVersion=" + version})
	if err != nil {
		return nil, fmt.Errorf("%s: watch %s: %w", s.name, path, err)
	}
	e := &events{}
	go func() {
		defer resp.Body.Close()
		lines := bufio.NewReader(resp.Body)
		for {
			line, err := lines.ReadBytes('\n')
			var event object
			if json.Unmarshal(line, &event) == nil {
				e.add(event)
			}
			if err != nil {
				return
			}
		}
	}()
	return e, nil
}

// events are what a watch has told.
type events struct {
	mu  sync.Mutex
	all []object
}

func (e *events) add(event object) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, event)
}

// types returns the types of the events of each object, in order.
func (e *events) types() object {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := object{}
	for _, event := range e.all {
		name, _ := dig(event, "object", "metadata", "name").(string)
		before, _ := out[name].([]any)
		out[name] = append(before, event["type"])
	}
	return out
}

// dig returns a value inside objects, or nil.
func dig(v any, path ...string) any {
	for _, key := range path {
		o, _ := v.(object)
		v = o[key]
	}
	return v
}
