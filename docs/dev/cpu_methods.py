"""Process time per step: bare loop, Trainer step, whole Loop step, fflib. Interleaved."""
import sys, time, statistics, tempfile
import torch, torch.nn.functional as F
from pathlib import Path
torch.set_num_threads(1)
import os
if os.environ.get("SEED"):
    torch.manual_seed=torch.default_generator.manual_seed
import goodness
from goodness.config import override
from goodness.presets import preset
from goodness.data.images import ImageData, Split
from goodness.training.local import LocalLearning
from goodness.training.run import RunFolder
width=int(sys.argv[1]); steps=int(sys.argv[2]); extra=dict(a.split("=") for a in sys.argv[3:])
rounds=int(extra.pop("rounds",7)); peer=float(extra.pop("peer",0.03)); ema=float(extra.pop("ema",0)); clip=float(extra.pop("clip",0)); prof=extra.pop("prof",None)
gen=torch.Generator().manual_seed(0)
N=128*50
def split(n):
    return Split(images=torch.randint(0,256,(n,1,28,28),generator=gen,dtype=torch.uint8),labels=torch.randint(0,10,(n,),generator=gen),indices=torch.arange(n))
import inspect
print(inspect.signature(ImageData)) if prof=="sig" else None
data=ImageData(name="made-up",classes=tuple(map(str,range(10))),train=split(N),val=split(10),test=split(10),mean=(0.13,),std=(0.31,),flips=False,provenance="made up")
config=override(preset("hinton"),{"network":"mlp","network.widths":(width,width),"batch":128,"epochs":1000,"optim.kind":"adam","optim.lr":1e-3,"optim.weight_decay":0.0,"optim.schedule":"constant","method.peer":peer,"optim.ema":ema,"optim.clip":clip,**{k:v for k,v in extra.items()}})
folder=RunFolder.create(Path(tempfile.mkdtemp())/"r")
with folder:
    loop=LocalLearning(config,data,folder,device=torch.device("cpu"),dtype=torch.float32)
    def ours(k):
        from goodness.training.draws import epoch_order
        order=epoch_order(N,1,loop.position.epoch)
        for i in range(k):
            rows=order[(i%50)*128:(i%50+1)*128]
            loop.accumulate(loop.step(rows,loop.moment())); loop.position.step+=1
            loop.listen({"event": "step"})
    # bare
    torch.manual_seed(0)
    sizes=[784,width,width]
    layers=[torch.nn.Sequential(torch.nn.Linear(a,b),torch.nn.ReLU()) for a,b in zip(sizes,sizes[1:])]
    opts=[torch.optim.Adam(l.parameters(),lr=1e-3,fused=True) for l in layers]
    means=[torch.full((width,),.5) for _ in layers]
    def bare(k):
        order=torch.randperm(N)
        for i in range(k):
            rows=order[(i%50)*128:(i%50+1)*128]
            x=data.train.images[rows].float().flatten(1)/255; y=data.train.labels[rows]
            wrong=(y+1+torch.randint(0,9,(128,)))%10
            pos,neg=x.clone(),x.clone()
            pos[:,:10]=F.one_hot(y,10).float(); neg[:,:10]=F.one_hot(wrong,10).float()
            x=torch.cat([pos,neg])
            for d,(layer,opt) in enumerate(zip(layers,opts)):
                x=x/(x.square().mean(-1,keepdim=True).sqrt()+1e-8)
                h=layer(x)
                g=h.square().sum(-1)-width
                loss=(F.softplus(-g[:128]).mean()+F.softplus(g[128:]).mean())/2
                if peer:
                    m=0.9*means[d]+0.1*h[:128].mean(0)
                    loss=loss+peer*(m.mean()-m).square().mean(); means[d]=m.detach()
                opt.zero_grad(); loss.backward(); opt.step()
                x=h.detach()
    sys.path.insert(0,"/tmp/fflib")
    import types
    pk=types.ModuleType("fflib"); pk.__path__=["/tmp/fflib/fflib"]; sys.modules["fflib"]=pk
    for n in ("nn","utils"):
        q=types.ModuleType(f"fflib.{n}"); q.__path__=[f"/tmp/fflib/fflib/{n}"]; sys.modules[f"fflib.{n}"]=q
    from fflib.nn.ff_linear import FFLinear
    ff=[FFLinear(784,width,20,0.02),FFLinear(width,width,20,0.02)]
    ff[0]=FFLinear(794,width,20,0.02)
    def fflib(k):
        order=torch.randperm(N)
        for i in range(k):
            rows=order[(i%50)*128:(i%50+1)*128]
            x=data.train.images[rows].float().flatten(1)/255; y=data.train.labels[rows]
            wrong=(y+1+torch.randint(0,9,(128,)))%10
            pos=torch.cat([x,F.one_hot(y,10).float()],1); neg=torch.cat([x,F.one_hot(wrong,10).float()],1)
            for layer in ff:   # FFNet.run_train: each layer learns, then both go on through it
                layer.run_train(pos,neg)
                pos,neg=layer(pos),layer(neg)
    ways={"bare":bare,"ours":ours}
    if width>=2000: ways["fflib"]=fflib
    if prof=="py":
        ours(5)
        import cProfile,pstats
        p=cProfile.Profile(); p.enable(); ours(100); p.disable(); pstats.Stats(p).sort_stats("tottime").print_stats(40); sys.exit()
    if prof=="torch":
        ours(5)
        from torch.profiler import profile
        for f in (ours,bare):
            with profile() as p: f(30)
            print(p.key_averages().table(sort_by="self_cpu_time_total",row_limit=30))
        sys.exit()
    for f in ways.values(): f(3)
    found={n:[] for n in ways}
    for _ in range(rounds):
        for n,f in ways.items():
            t=time.process_time(); f(steps); found[n].append((time.process_time()-t)/steps*1e3)
    med={n:statistics.median(v) for n,v in found.items()}
    print({n:f"{v:.3f} ms" for n,v in med.items()}, "ours/bare %.3f"%(med["ours"]/med["bare"]), "paired %.3f"%statistics.median(a/b for a,b in zip(found["ours"],found["bare"])), "min/min %.3f"%(min(found["ours"])/min(found["bare"])), ("ours/fflib %.3f"%(statistics.median(a/b for a,b in zip(found["ours"],found["fflib"])))) if "fflib" in med else "")
