// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/viplab/viplab/lab/cluster/store"
)

// kubeletPort is the port of a node on which its kubelet answers.
const kubeletPort = "10250"

// proxyNode serves nodes/[SCHEME:]NAME[:PORT]/proxy: pages of the node's kubelet, which are /healthz, /metrics, /pods,
// and the folders of logs below /logs/. No other port of a node is served.
func (s *Server) proxyNode(w http.ResponseWriter, r *request) error {
	_, name, port, ok := utilnet.SplitSchemeNamePort(r.key.Name)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid node request %q", r.key.Name))
	}
	if _, ok := store.Get[*corev1.Node](s.store, "", name); !ok {
		return notFound(r.resource.gr(), name)
	}
	if port != "" && port != kubeletPort {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("error trying to reach port %s of node %s: want %s, that of its "+
			"kubelet", port, name, kubeletPort))
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return notAllowed(r)
	}
	switch rest := unescaped(r.path); {
	case rest == "/healthz":
		fmt.Fprint(w, "ok")
		return nil
	case rest == "/metrics": // there are none, and clients that want some need not wait for them
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		return nil
	case rest == "/pods":
		list := &corev1.PodList{}
		for _, p := range s.podsOn(name) {
			list.Items = append(list.Items, *p)
		}
		v, err := negotiate(r.Request, false)
		if err == nil {
			v.write(w, http.StatusOK, list)
		}
		return err
	case rest == "/logs" || strings.HasPrefix(rest, "/logs/"):
		return s.logFolder(w, r, name, strings.Trim(strings.TrimPrefix(rest, "/logs"), "/"))
	}
	return errNoSuchPath
}

// podsOn lists the pods of a node.
func (s *Server) podsOn(node string) []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range s.store.Snapshot().Pods {
		if p.Spec.NodeName == node {
			out = append(out, p)
		}
	}
	return out
}

// logFolder serves a path below the folder of a node's logs: pods/NAMESPACE_NAME_UID/CONTAINER/0.log.
func (s *Server) logFolder(w http.ResponseWriter, r *request, node, at string) error {
	if at == "" {
		return writeFolder(w, "pods/")
	}
	steps := strings.Split(at, "/")
	if steps[0] != "pods" || len(steps) > 4 {
		return errNoSuchPath
	}
	var folders []string
	for _, p := range s.podsOn(node) {
		folder := fmt.Sprintf("%s_%s_%s", p.Namespace, p.Name, p.UID)
		if folders = append(folders, folder+"/"); len(steps) > 1 && steps[1] == folder {
			return s.logOf(w, r, p, steps[2:])
		}
	}
	if len(steps) > 1 {
		return errNoSuchPath
	}
	return writeFolder(w, folders...)
}

// logOf serves a path below the folder of a pod's logs: CONTAINER/0.log.
func (s *Server) logOf(w http.ResponseWriter, r *request, p *corev1.Pod, at []string) error {
	if len(at) == 0 {
		var folders []string
		for _, c := range p.Spec.Containers {
			folders = append(folders, c.Name+"/")
		}
		return writeFolder(w, folders...)
	}
	if len(at) == 1 {
		return writeFolder(w, "0.log")
	}
	if at[1] != "0.log" {
		return errNoSuchPath
	}
	if s.containers == nil {
		return errNoContainers
	}
	var text bytes.Buffer
	err := s.containers.Logs(r.Context(), store.KeyOf(p), at[0], &corev1.PodLogOptions{Timestamps: true}, &text)
	if err != nil {
		return err
	}
	_, _ = w.Write(text.Bytes())
	return nil
}

// writeFolder writes a page with links to what is in a folder.
func writeFolder(w http.ResponseWriter, names ...string) error {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprintln(w, "<pre>")
	for _, n := range names {
		fmt.Fprintf(w, "<a href=\"%[1]s\">%[1]s</a>\n", n) // names of objects need no escapes
	}
	fmt.Fprintln(w, "</pre>")
	return nil
}
