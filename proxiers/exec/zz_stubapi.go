package exec

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/viplab/viplab/lab/kube"
	"github.com/viplab/viplab/lab/netns"
)

type apiServer struct{ s *kube.Store }
type apiEndpoint struct{ config []byte }

func apiNew(s *kube.Store) *apiServer { return &apiServer{s} }
func (a *apiServer) Serve(ctx context.Context, ns *netns.NS, addr string) (*apiEndpoint, error) {
	l, err := ns.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	srv := &http.Server{Handler: http.HandlerFunc(a.handle)}
	go srv.Serve(l)
	context.AfterFunc(ctx, func() { srv.Close() })
	c := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"x","cluster":{"server":"http://%s"}}],"users":[{"name":"x","user":{}}],"contexts":[{"name":"x","context":{"cluster":"x","user":"x"}}],"current-context":"x"}`, l.Addr())
	return &apiEndpoint{[]byte(c)}, nil
}
func (a *apiServer) handle(w http.ResponseWriter, r *http.Request) {
	kinds := map[string]kube.Kind{"/api/v1/nodes": kube.KindNode, "/api/v1/services": kube.KindService, "/apis/discovery.k8s.io/v1/endpointslices": kube.KindEndpointSlice, "/api/v1/endpoints": kube.KindEndpoints}
	k, ok := kinds[r.URL.Path]
	q := r.URL.Query()
	if !ok || q.Get("sendInitialEvents") == "true" {
		w.WriteHeader(422)
		json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: 422, Reason: "Invalid"})
		return
	}
	sel, _ := labels.Parse(q.Get("labelSelector"))
	match := func(o kube.Object) bool {
		if f, found := strings.CutPrefix(q.Get("fieldSelector"), "metadata.name="); found && o.GetName() != f {
			return false
		}
		return sel.Matches(labels.Set(o.GetLabels()))
	}
	w.Header().Set("Content-Type", "application/json")
	if q.Get("watch") == "" {
		s := a.s.Snapshot()
		items := []kube.Object{}
		for _, o := range s.Objects(k) {
			if match(o) {
				items = append(items, o)
			}
		}
		gv := "v1"
		if k == kube.KindEndpointSlice {
			gv = "discovery.k8s.io/v1"
		}
		json.NewEncoder(w).Encode(map[string]any{"kind": string(k) + "List", "apiVersion": gv, "metadata": map[string]string{"resourceVersion": fmt.Sprint(s.Revision)}, "items": items})
		return
	}
	rv, _ := strconv.ParseUint(q.Get("resourceVersion"), 10, 64)
	w.(http.Flusher).Flush()
	for e, err := range a.s.WatchFrom(r.Context(), rv, k) {
		if err != nil {
			return
		}
		if !match(e.Object) {
			continue
		}
		json.NewEncoder(w).Encode(map[string]any{"type": e.Type, "object": e.Object})
		w.(http.Flusher).Flush()
	}
}
func (e *apiEndpoint) Kubeconfig() []byte { return e.config }
func (*apiServer) Close() error           { return nil }
