"""The most that a rank of ZeRO-3 has gathered at one time, by model and limits. gathered.py STEP_DUMP"""
import json,subprocess,sys
D = sys.argv[1]
MODELS={'Llama-3.2-1B':dict(hidden_size=2048,intermediate_size=8192,num_hidden_layers=16,num_attention_heads=32,num_key_value_heads=8,tie_word_embeddings=True),
'Llama-3.1-8B':dict(hidden_size=4096,intermediate_size=14336,num_hidden_layers=32,num_attention_heads=32,num_key_value_heads=8,tie_word_embeddings=False),
'Llama-3.1-70B':dict(hidden_size=8192,intermediate_size=28672,num_hidden_layers=80,num_attention_heads=64,num_key_value_heads=8,tie_word_embeddings=False)}
for name,c in MODELS.items():
    h=c['hidden_size']
    json.dump(dict(model_type='llama',vocab_size=128256,max_position_embeddings=8192,**c),open('c.json','w'))
    for label,w in {'defaults':{}, 'live 3e8, reuse 3e8':dict(most_live_elements=300000000,reuse_elements=300000000),'live 3e8, reuse 0':dict(most_live_elements=300000000,reuse_elements=0),'no prefetch, reuse 0':dict(prefetch_elements=0,reuse_elements=0),"Trainer's auto":dict(prefetch_elements=int(.9*h*h),persistence_elements=10*h)}.items():
        out=subprocess.run([D,'c.json','batch=1','seq=256','steps=3','dtype=bf16','implementation=fused','attention=sdpa','checkpointing=non_reentrant','zero=3','ranks=8','overlap_comm=1','log=blocks',*(f'{k}={v}' for k,v in w.items())],capture_output=True,text=True)
        if out.returncode: print(out.stderr); continue
        now=most=0;by={}
        for ph,kind,n,cat,b in json.loads(out.stdout):
            if cat!='gathered': continue
            now+= n if kind=='gather' else -n
            by[ph]=max(by.get(ph,0),now)
        print(f"{name:14s} {label:22s}", {k:round(v/1e9,3) for k,v in by.items()})
