// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/release"
	"github.com/viplab/viplab/internal/suite/netpol"
	"github.com/viplab/viplab/internal/suite/netpol/oracle"
)

//go:embed testdata/cyclonus.go
var source string

// cyclonus is a program around cyclonus' packages.
var cyclonus = release.Command{
	Name: "cyclonus", Module: "github.com/mattfenwick/cyclonus", Version: "v0.5.6", Source: source,
}

// question asks about every connection between pods, and between them and addresses outside, on the ports.
type question struct {
	name    string
	Cluster *oracle.Cluster
	Outside []netip.Addr
	Ports   []netpol.Port
}

// flow is one of the connections that a question asks about.
type flow struct {
	oracle.Flow
	from, to string
}

func (f flow) String() string { return fmt.Sprintf("%s>%s:%d/%s", f.from, f.to, f.Port, f.Protocol) }

// flows returns the connections in the order of the answer.
func (q *question) flows() []flow {
	var names []string
	var ends []oracle.End
	for _, p := range q.Cluster.Pods {
		names, ends = append(names, p.Namespace+"/"+p.Name), append(ends, oracle.End{Addr: p.Addrs[0], Pod: p})
	}
	for _, a := range q.Outside {
		names, ends = append(names, a.String()), append(ends, oracle.End{Addr: a})
	}
	var out []flow
	for i, from := range ends {
		for j, to := range ends {
			for _, p := range q.Ports {
				out = append(out, flow{oracle.Flow{From: from, To: to, Protocol: p.Protocol, Port: p.Number},
					names[i], names[j]})
			}
		}
	}
	return out
}

// answer has a "1" for each connection that is allowed, and a "0" for others.
type answer struct {
	Allowed    string // by the policies as they are
	Simplified string // by the policies as cyclonus simplifies them before it judges
}

// oracles is a running cyclonus that answers questions.
type oracles struct {
	cmd *exec.Cmd
	in  io.Closer
	ask *json.Encoder
	say *json.Decoder
}

func start(ctx context.Context) (*oracles, error) {
	path, err := cyclonus.Path()
	if err != nil {
		return nil, err
	}
	o := &oracles{cmd: exec.CommandContext(ctx, path, "judge")}
	o.cmd.Stderr = os.Stderr
	in, err := o.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := o.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	o.in, o.ask, o.say = in, json.NewEncoder(in), json.NewDecoder(out)
	return o, o.cmd.Start()
}

func (o *oracles) stop() error { return errors.Join(o.in.Close(), o.cmd.Wait()) }

func (o *oracles) answer(q question) (a answer, err error) {
	if err := o.ask.Encode(q); err != nil {
		return a, err
	}
	err = o.say.Decode(&a)
	if want := len(q.flows()); err == nil && (len(a.Allowed) != want || len(a.Simplified) != want) {
		err = fmt.Errorf("%s: cyclonus answers %d and %d of %d questions", q.name, len(a.Allowed), len(a.Simplified), want)
	}
	return a, err
}

// allPorts are those of cyclonus' own pods.
var allPorts = append([]netpol.Port{{Number: 80, Protocol: corev1.ProtocolSCTP},
	{Number: 81, Protocol: corev1.ProtocolSCTP}}, netpol.Ports...)
